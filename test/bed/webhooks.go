package bed

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// injection is cert-manager's request to fill in a CA bundle.
const injection = "cert-manager.io/inject-ca-from"

// pointWebhooks lets every webhook of an object be called at a server, with
// the bed's authority.
func pointWebhooks(object *unstructured.Unstructured, server string, bundle []byte) error {
	annotations := object.GetAnnotations()
	delete(annotations, injection)
	object.SetAnnotations(annotations)
	switch object.GetKind() {
	case "CustomResourceDefinition":
		return pointClient(object.Object, server, bundle, "spec", "conversion", "webhook", "clientConfig")
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return fmt.Errorf("reading %s: %w", object.GetName(), err)
		}
		for _, hook := range hooks {
			if err := pointClient(hook.(map[string]any), server, bundle, "clientConfig"); err != nil {
				return err
			}
		}
		return unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
	}
	return nil
}

// pointClient replaces the Service of one client configuration by a URL.
func pointClient(object map[string]any, server string, bundle []byte, fields ...string) error {
	config, found, err := unstructured.NestedMap(object, fields...)
	if err != nil {
		return fmt.Errorf("reading webhook: %w", err)
	}
	if !found {
		return nil
	}
	path, _, err := unstructured.NestedString(config, "service", "path")
	if err != nil {
		return fmt.Errorf("reading webhook: %w", err)
	}
	return unstructured.SetNestedMap(object, map[string]any{
		"url":      server + path,
		"caBundle": base64.StdEncoding.EncodeToString(bundle),
	}, fields...)
}
