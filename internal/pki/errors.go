package pki

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotFound says that the cluster's certificate authorities do not exist yet.
var ErrNotFound = errors.New("cluster certificates not found")

// InvalidCertificateError says that a Secret holds something that cannot
// serve as the cluster's certificate or key. It stays until someone mends the
// Secret. The text never contains what the Secret holds.
type InvalidCertificateError struct {
	// Secret is the Secret to mend.
	Secret client.ObjectKey
	// Problem is what is wrong with it, for people.
	Problem string
}

// Error implements error.
func (e *InvalidCertificateError) Error() string {
	return fmt.Sprintf("Secret %s: %s", e.Secret.Name, e.Problem)
}
