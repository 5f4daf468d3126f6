package pki

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

// ErrNotFound means that the cluster's CAs do not exist yet.
var ErrNotFound = errors.New("cluster certificates not found")

// ErrExternalClient means that external etcd has no client certificate, and
// that there is no other problem.
var ErrExternalClient = errors.New("external etcd has no client certificate")

// VaultReason returns the reason of conditions and events for an error about a StarVault;
// empty for any other error.
func VaultReason(err error) string {
	if problem, is := errors.AsType[*vault.Error](err); is {
		return string(problem.Problem)
	}
	if _, is := errors.AsType[*IdentityError](err); is {
		return bootstrapv1.VaultIdentityUnusableReason
	}
	return ""
}

// InvalidCertificateError means that the content of a Secret cannot be used as
// the cluster's certificate or key. It persists until a user fixes the Secret.
// The message never contains the content of the Secret.
type InvalidCertificateError struct {
	// Secret is the Secret to fix.
	Secret client.ObjectKey
	// Problem is the message for users.
	Problem string
	// cause is the error for errors.Is; nil if there is none.
	cause error
}

// Error implements error.
func (e *InvalidCertificateError) Error() string {
	return fmt.Sprintf("Secret %s: %s", e.Secret.Name, e.Problem)
}

// Unwrap returns the cause.
func (e *InvalidCertificateError) Unwrap() error { return e.cause }
