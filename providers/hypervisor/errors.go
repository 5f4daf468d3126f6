package hypervisor

import "errors"

// Error is a failure whose cause the driver understands.
type Error struct {
	// Reason becomes the condition's reason.
	Reason string
	// Terminal means trying again is pointless until the spec changes.
	Terminal bool
	// Passing means that the hypervisor is not known to fail: it will answer,
	// or turn out to be out of reach, within moments. What was reported before
	// still holds.
	Passing bool
	// Waiting means that nothing failed: the request waits for its turn, or
	// for something that will come by itself. The driver delivers the
	// machine's key when it is time to ask again.
	Waiting bool
	// Err is the cause, with the hypervisor's own words and without
	// credentials.
	Err error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonFor returns the condition reason that err carries, or fallback.
func ReasonFor(err error, fallback string) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return fallback
}

// IsTerminal reports whether trying again is pointless.
func IsTerminal(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Terminal
}

// IsPassing reports whether what was reported before err still holds.
func IsPassing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Passing
}

// IsWaiting reports whether err is no failure but a wait for its turn.
func IsWaiting(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Waiting
}
