package vault

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/vault/api"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// Problem is what prevents the use of a vault: a reason of conditions and events.
type Problem string

const (
	// Unreachable means that the server does not respond, or its certificate is not trusted.
	Unreachable Problem = bootstrapv1.VaultUnreachableReason
	// Sealed means that the server is sealed, in standby, or in maintenance.
	Sealed Problem = bootstrapv1.VaultSealedReason
	// CredentialsRejected means that the server rejects the credentials of the manager.
	CredentialsRejected Problem = bootstrapv1.VaultCredentialsRejectedReason
	// Forbidden means that the policies of the manager do not allow the request.
	Forbidden Problem = bootstrapv1.VaultForbiddenReason
	// NotFound means that there is no such engine, role or auth method, or the namespace is
	// another one.
	NotFound Problem = bootstrapv1.VaultNotFoundReason
	// Refused means that the server refuses the content of the request.
	Refused Problem = bootstrapv1.VaultRefusedReason
	// Unsuitable means that the server has signed something else than was requested.
	Unsuitable Problem = bootstrapv1.VaultRoleUnsuitableReason
)

// maxDetail limits the text of a server in an error, in bytes.
const maxDetail = 256

// Error is a problem with a vault.
type Error struct {
	// Problem is what prevents its use.
	Problem Problem
	// Path is the path of the request.
	Path string
	// Detail is a text for people.
	Detail string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("StarVault, path %s: %s", e.Path, e.Detail) }

// Is reports whether an error has a problem.
func Is(err error, p Problem) bool {
	found, is := errors.AsType[*Error](err)
	return is && found.Problem == p
}

// classify returns the error of a request.
func classify(path string, login bool, err error) error {
	answer, is := errors.AsType[*api.ResponseError](err)
	if !is {
		return &Error{Problem: Unreachable, Path: path, Detail: "the server does not respond: " + limited(err.Error())}
	}
	e := &Error{Problem: Refused, Path: path, Detail: limited(strings.Join(answer.Errors, "; "))}
	switch {
	case answer.StatusCode == http.StatusServiceUnavailable || answer.StatusCode == http.StatusTooManyRequests:
		e.Problem, e.Detail = Sealed, "the server is sealed, in standby or overloaded"
	case answer.StatusCode == http.StatusNotFound:
		e.Problem, e.Detail = NotFound, "the path does not exist: check the namespace, the mount path and the auth path of the identity"
	case login && answer.StatusCode != http.StatusBadGateway && answer.StatusCode != http.StatusGatewayTimeout:
		// Vault 1.14 answers a wrong secret ID with 500.
		e.Problem, e.Detail = CredentialsRejected, "the server rejects the credentials: "+e.Detail
	case answer.StatusCode == http.StatusForbidden:
		e.Problem, e.Detail = Forbidden, "the policies of the manager do not allow this request"
	case answer.StatusCode >= http.StatusInternalServerError:
		e.Problem = Unreachable
	}
	return e
}

// limited returns a text of a server without line breaks, and not too long.
func limited(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxDetail)], "")
}
