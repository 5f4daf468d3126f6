package endpoints

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
)

// The messages of a condition must be the same for all servers that a tenant
// may not probe.
func TestCoarse(t *testing.T) {
	errAnswered := errors.New("the server answered 503")
	get := func(err error) error {
		return fmt.Errorf("asking: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1/secret", Err: err})
	}
	dial := func(err error) error { return get(&net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	cert := func(err error) error { return get(&tls.CertificateVerificationError{Err: err}) }
	for name, tc := range map[string]struct {
		err, want error
	}{
		"Refused":     {dial(syscall.ECONNREFUSED), ErrUnreachable},
		"Unreachable": {dial(syscall.EHOSTUNREACH), ErrUnreachable},
		"Reset":       {get(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), ErrUnreachable},
		"NoName":      {dial(&net.DNSError{Err: "no such host", Name: "a", IsNotFound: true}), ErrUnreachable},
		"NoServer":    {&net.DNSError{Err: "server misbehaving", Name: "a"}, ErrUnreachable},
		"Deadline":    {get(context.DeadlineExceeded), ErrUnreachable},
		"Timeout":     {get(&net.DNSError{IsTimeout: true}), ErrUnreachable},
		"Closed":      {get(io.EOF), ErrUnreachable},
		"ClosedEarly": {get(io.ErrUnexpectedEOF), ErrUnreachable},
		"Denied":      {dial(ErrDenied), ErrDenied},
		"NoTLS":       {get(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), ErrUnreachable},
		"OtherServer": {get(errors.New(`malformed HTTP response "SSH-2.0-OpenSSH_9.6"`)), ErrUnreachable},
		"Canceled":    {get(context.Canceled), context.Canceled},
		"UnknownCA":   {cert(x509.UnknownAuthorityError{}), ErrUntrusted},
		"OtherName":   {cert(x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"vault.internal"}}, Host: "10.0.0.1"}), ErrUntrusted},
		"Expired":     {cert(x509.CertificateInvalidError{Reason: x509.Expired, Detail: "since 2020"}), ErrUntrusted},
		"OtherPin":    {get(&pinError{got: "AB:CD", want: "00:11"}), ErrUntrusted},
		"Answered":    {errAnswered, errAnswered},
	} {
		t.Run(name, func(t *testing.T) {
			got := Coarse("10.0.0.1", tc.err)
			if !errors.Is(got, tc.want) || got.Error() != tc.want.Error() {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}
