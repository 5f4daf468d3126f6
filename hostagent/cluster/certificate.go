package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var certificateRequests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"}

// maxRefusal limits the text of a refusal, in bytes.
const maxRefusal = 512

// CertificateRequest is a request for a certificate.
type CertificateRequest struct {
	// Name is the name of the object.
	Name   string
	Signer string
	// PEM is the PKCS #10 request.
	PEM    []byte
	Usages []string
	// Validity is the longest validity. If not set, the signer decides.
	Validity time.Duration
}

// RefusedError means that a request was denied, or could not be signed.
type RefusedError struct{ Name, Reason string }

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the request %s was refused: %s", e.Name, e.Reason)
}

// Certificate returns the certificate, in PEM, if it is signed already. It creates the
// request if it does not exist.
func (c *Client) Certificate(ctx context.Context, r CertificateRequest) ([]byte, error) {
	resource := c.dynamic.Resource(certificateRequests)
	object, err := resource.Get(ctx, r.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		usages := make([]any, 0, len(r.Usages))
		for _, usage := range r.Usages {
			usages = append(usages, usage)
		}
		spec := map[string]any{"signerName": r.Signer, "request": base64.StdEncoding.EncodeToString(r.PEM), "usages": usages}
		if r.Validity > 0 {
			spec["expirationSeconds"] = int64(r.Validity.Seconds())
		}
		_, err = resource.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": r.Name}, "spec": spec,
		}}, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return nil, fmt.Errorf("creating certificate request: %w", err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading certificate request: %w", err)
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if kind := condition["type"]; kind == "Denied" || kind == "Failed" {
			text, _ := condition["message"].(string)
			return nil, &RefusedError{Name: r.Name, Reason: strings.ToValidUTF8(text[:min(len(text), maxRefusal)], "")}
		}
	}
	encoded, _, _ := unstructured.NestedString(object.Object, "status", "certificate")
	if encoded == "" {
		return nil, nil
	}
	certificate, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("reading certificate: %w", err)
	}
	return certificate, nil
}
