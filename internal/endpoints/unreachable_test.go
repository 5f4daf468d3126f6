package endpoints

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
)

func TestCoarse(t *testing.T) {
	get := func(err error) error {
		return fmt.Errorf("asking: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1/secret", Err: err})
	}
	dial := func(err error) error { return get(&net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	unknown := x509.UnknownAuthorityError{}
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
		"Certificate": {get(unknown), unknown},
	} {
		t.Run(name, func(t *testing.T) {
			got := Coarse("10.0.0.1", tc.err)
			if !errors.Is(got, tc.want) || errors.Is(tc.want, ErrUnreachable) && got.Error() != ErrUnreachable.Error() {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}
