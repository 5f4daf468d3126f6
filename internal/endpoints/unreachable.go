package endpoints

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"

	ctrl "sigs.k8s.io/controller-runtime"
)

// ErrUnreachable stands for every way in which a connection fails before there is
// a response. A tenant may choose the endpoint and can read the condition, so a
// finer reason would let the tenant scan the network of the management cluster.
var ErrUnreachable = errors.New("there is no connection to it, or no response in time; the manager's log has the cause")

// Coarse returns err for a condition: ErrUnreachable if the connection to server
// was refused or closed, took too long, or if its name is unknown. It writes the
// cause to the log. Any other error is returned as it is.
func Coarse(server string, err error) error {
	if request, is := errors.AsType[*url.Error](err); is {
		err = request.Err
	}
	_, isOp := errors.AsType[*net.OpError](err)
	_, isName := errors.AsType[*net.DNSError](err)
	switch timeout, is := errors.AsType[interface {
		error
		Timeout() bool
	}](err); {
	case errors.Is(err, ErrDenied):
		return ErrDenied
	case isOp, isName, is && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		ctrl.Log.WithName("endpoints").Info("Connection failed", "server", server, "cause", err.Error())
		return ErrUnreachable
	}
	return err
}
