package ovirtsim

import (
	"fmt"
	"net/http"
	"strings"
)

// fault is a refusal as the engine makes it.
type fault struct {
	status int
	reason string
	detail string
	// empty faults have no body, such as that of a missing object.
	empty bool
}

func (f *fault) Error() string { return f.reason + ": " + f.detail }

func (f *fault) elem() *elem {
	return el("fault", filled("detail", f.detail), leaf("reason", f.reason))
}

const operationFailed = "Operation Failed"

// refused is a refusal by the engine's backend: messages in brackets.
func refused(status int, messages ...string) error {
	return &fault{status: status, reason: operationFailed, detail: "[" + strings.Join(messages, ", ") + "]"}
}

// conflict is a refusal because of how things are at the moment.
func conflict(format string, args ...any) error {
	return refused(http.StatusConflict, fmt.Sprintf(format, args...))
}

// invalid returns the rejection of an invalid request.
func invalid(format string, args ...any) error {
	return refused(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

// notFound is the answer for an object that is not there: no words at all.
func notFound() error {
	return &fault{status: http.StatusNotFound, reason: "Not Found", empty: true}
}

// missingEntity is a fault for an object that a body names.
func missingEntity(kind, id string) error {
	return &fault{status: http.StatusNotFound, reason: operationFailed, detail: fmt.Sprintf("Entity not found: %s: id=%s", kind, id)}
}

func badValue(name, value string) error {
	return &fault{status: http.StatusBadRequest, reason: "Invalid value", detail: fmt.Sprintf("The value %q isn't valid for %q", value, name)}
}

// incomplete returns the missing fields in the body of a request that creates
// an object.
func incomplete(kind, fields string) error {
	return &fault{
		status: http.StatusBadRequest,
		reason: "Incomplete parameters",
		detail: fmt.Sprintf("%s [%s] required for add", kind, fields),
	}
}

// nameTaken is the engine's answer to a name that must be unique.
func nameTaken(action, kind string) error {
	return conflict("Cannot %s %s. The %s name is already in use, please choose a unique name and try again.", action, kind, kind)
}
