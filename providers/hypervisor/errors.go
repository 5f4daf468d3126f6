package hypervisor

import (
	"errors"
	"fmt"
)

// Error is a failure whose cause the driver understands.
type Error struct {
	// Reason becomes the reason of the condition.
	Reason string
	// Terminal is set if a retry cannot succeed until the spec changes.
	Terminal bool
	// Transient is set if the hypervisor is not known to fail: within moments,
	// either a response or a timeout follows. The state that was reported before
	// remains valid.
	Transient bool
	// Waiting is set if there is no failure: the request is queued, or depends on
	// another object that will exist later. The driver delivers the key of the
	// machine when the request can be repeated.
	Waiting bool
	// Err is the cause, in the words of the hypervisor and without credentials.
	Err error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Failure returns an Error with a reason and a message.
func Failure(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Terminal returns an Error that a retry cannot resolve until the spec changes.
func Terminal(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Terminal: true, Err: fmt.Errorf(format, args...)}
}

// Waiting returns an Error for a request that is queued, or that depends on an
// object that will exist later.
func Waiting(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Waiting: true, Err: fmt.Errorf(format, args...)}
}

// ReasonFor returns the condition reason that err carries, or fallback.
func ReasonFor(err error, fallback string) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return fallback
}

// IsTerminal reports whether a retry cannot succeed until the spec changes.
func IsTerminal(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Terminal
}

// IsTransient reports whether the state that was reported before err remains
// valid.
func IsTransient(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Transient
}

// IsWaiting reports whether err stands for a queued request and not for a
// failure.
func IsWaiting(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Waiting
}
