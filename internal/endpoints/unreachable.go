package endpoints

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"

	ctrl "sigs.k8s.io/controller-runtime"
)

// ErrUnreachable represents all failures of a connection before a response. A
// tenant may choose the endpoint and can read the condition, so a more specific
// reason would let the tenant scan the network of the management cluster.
var ErrUnreachable = errors.New("there is no connection to it, or no response in time; the manager's log has the cause")

// ErrUntrusted represents every certificate that is not trusted. Names,
// thumbprint, issuer and dates of the certificate would reveal to a tenant
// which server listens at an address.
var ErrUntrusted = errors.New("its certificate is not trusted: check the server's name, and the CA bundle or thumbprint; the manager's log has the cause")

// Coarse returns err for a condition: ErrDenied, ErrUntrusted,
// context.Canceled, or ErrUnreachable for all other failures of a request to
// server before a response. It logs the cause of ErrUntrusted and
// ErrUnreachable. An error that is not a connection error is returned
// unchanged.
func Coarse(server string, err error) error {
	var coarse error
	switch {
	case errors.Is(err, ErrDenied):
		return ErrDenied
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case isUntrusted(err):
		coarse = ErrUntrusted
	case isUnreachable(err):
		coarse = ErrUnreachable
	default:
		return err
	}
	ctrl.Log.WithName("endpoints").Info("Connection failed", "server", server, "cause", err.Error())
	return coarse
}

func isUntrusted(err error) bool {
	_, isChain := errors.AsType[*tls.CertificateVerificationError](err)
	_, isPin := errors.AsType[*pinError](err)
	return isChain || isPin
}

func isUnreachable(err error) bool {
	// A client of net/http returns this for each request without a response, also if
	// the server speaks another protocol than TLS or HTTP.
	_, isRequest := errors.AsType[*url.Error](err)
	_, isOp := errors.AsType[*net.OpError](err)
	_, isName := errors.AsType[*net.DNSError](err)
	timeout, is := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return isRequest || isOp || isName || is && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
