package namespaces

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SelectorError means that a selector is not valid.
type SelectorError struct{ Err error }

// Error implements error.
func (e *SelectorError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SelectorError) Unwrap() error { return e.Err }

// Allowed reports whether a namespace is in a list, or has labels that a selector
// matches. No selector matches none, and one without rules matches all. An invalid one is
// a SelectorError.
func Allowed(ctx context.Context, reader client.Reader, list []string, selector *metav1.LabelSelector, namespace string) (bool, error) {
	if slices.Contains(list, namespace) {
		return true, nil
	}
	if selector == nil {
		return false, nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, &SelectorError{Err: err}
	}
	if parsed.Empty() {
		return true, nil
	}
	// Metadata only, so that a cache stores no more than that.
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := reader.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return false, fmt.Errorf("reading namespace %q: %w", namespace, err)
	}
	return parsed.Matches(labels.Set(found.Labels)), nil
}
