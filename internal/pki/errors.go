package pki

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotFound says that the cluster's certificate authorities do not exist yet.
var ErrNotFound = errors.New("cluster certificates not found")

// ErrExternalClient says that an etcd that somebody else runs cannot be reached
// for want of a client certificate, and that nothing else is amiss.
var ErrExternalClient = errors.New("external etcd has no client certificate")

// InvalidCertificateError says that a Secret holds something that cannot
// serve as the cluster's certificate or key. It stays until someone mends the
// Secret. The text never contains what the Secret holds.
type InvalidCertificateError struct {
	// Secret is the Secret to mend.
	Secret client.ObjectKey
	// Problem is what is wrong with it, for people.
	Problem string
	// cause is what it can be told by; nil if it is like all others.
	cause error
}

// Error implements error.
func (e *InvalidCertificateError) Error() string {
	return fmt.Sprintf("Secret %s: %s", e.Secret.Name, e.Problem)
}

// Unwrap lets the cause be found.
func (e *InvalidCertificateError) Unwrap() error { return e.cause }
