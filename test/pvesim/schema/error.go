package schema

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Error is a rejection, as an API daemon of Proxmox VE sends it.
type Error struct {
	Status  int
	Message string
	// Errors are the problems by parameter.
	Errors map[string]string
}

func (e *Error) Error() string {
	lines := []string{strings.TrimSuffix(e.Message, "\n")}
	for _, name := range slices.Sorted(maps.Keys(e.Errors)) {
		lines = append(lines, name+": "+strings.TrimSuffix(e.Errors[name], "\n"))
	}
	return strings.Join(lines, "\n")
}

// Failed returns the error of a handler: status 500 and a text.
func Failed(format string, args ...any) *Error {
	return &Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf(format, args...) + "\n"}
}

// Invalid returns the error for parameters: status 400 and a text for each.
func Invalid(errors map[string]string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: "Parameter verification failed.\n", Errors: errors}
}

// InvalidParameter returns the error for one parameter.
func InvalidParameter(name, format string, args ...any) *Error {
	return Invalid(map[string]string{name: fmt.Sprintf(format, args...)})
}

// Denied returns the error for a missing permission.
func Denied(what string) *Error {
	text := "Permission check failed"
	if what != "" {
		text += " (" + what + ")"
	}
	return &Error{Status: http.StatusForbidden, Message: text + "\n"}
}
