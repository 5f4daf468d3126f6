package bed

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// certificates does the work of cert-manager, of which a cluster has only the
// CRDs: it issues the Certificates with one CA, and sets this CA in webhooks.
type certificates struct {
	client client.Client
	ca     *authority
	// injected are the objects that know the authority, by UID and generation.
	injected map[string]bool
}

// hooked are the kinds that name a Certificate whose authority they trust.
var hooked = []schema.GroupVersionKind{
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
}

// IssueCertificates returns a function that does the work of cert-manager in a
// cluster each time that it is called.
func IssueCertificates(c client.Client) (func(context.Context) error, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	return (&certificates{client: c, ca: ca}).sync, nil
}

func (c *certificates) sync(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "CertificateList"})
	err := c.client.List(ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || len(list.Items) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing Certificates: %w", err)
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, c.issue(ctx, &list.Items[i]))
	}
	for _, kind := range hooked {
		errs = append(errs, c.inject(ctx, kind))
	}
	return errors.Join(errs...)
}

// issue creates the Secret of a Certificate.
func (c *certificates) issue(ctx context.Context, certificate *unstructured.Unstructured) error {
	name, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	names, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	secret := &corev1.Secret{Type: corev1.SecretTypeTLS}
	secret.Namespace, secret.Name = certificate.GetNamespace(), name
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(secret), secret); !apierrors.IsNotFound(err) {
		return err
	}
	issued, err := c.ca.server(certificate.GetName(), names)
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{"tls.crt": issued.cert, "tls.key": issued.key, "ca.crt": c.ca.bundle()}
	if err := c.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating Secret %s: %w", name, err)
	}
	return nil
}

// inject lets the objects of a kind trust the authority. Definitions are many
// and large, so only their metadata is read.
func (c *certificates) inject(ctx context.Context, kind schema.GroupVersionKind) error {
	list := metadataList(kind)
	if err := c.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing %ss: %w", kind.Kind, err)
	}
	for i := range list.Items {
		item := &list.Items[i]
		key := fmt.Sprint(item.UID, item.Generation)
		if item.Annotations[injection] == "" || c.injected[key] {
			continue
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(item), object); err != nil {
			return fmt.Errorf("reading %s: %w", item.Name, err)
		}
		if err := trust(object, c.ca.bundle()); err != nil {
			return err
		}
		if err := c.client.Update(ctx, object); err != nil {
			return fmt.Errorf("writing %s: %w", item.Name, err)
		}
		if c.injected == nil {
			c.injected = map[string]bool{}
		}
		c.injected[fmt.Sprint(object.GetUID(), object.GetGeneration())] = true
	}
	return nil
}

// trust writes the authority into every client configuration of an object.
func trust(object *unstructured.Unstructured, bundle []byte) error {
	encoded := base64.StdEncoding.EncodeToString(bundle)
	if object.GetKind() == "CustomResourceDefinition" {
		if _, found, _ := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook", "clientConfig"); !found {
			return nil
		}
		return unstructured.SetNestedField(object.Object, encoded, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	}
	hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("reading %s: %w", object.GetName(), err)
	}
	for _, hook := range hooks {
		if err := unstructured.SetNestedField(hook.(map[string]any), encoded, "clientConfig", "caBundle"); err != nil {
			return fmt.Errorf("writing %s: %w", object.GetName(), err)
		}
	}
	return unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
}

func metadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}
