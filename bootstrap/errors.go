package bootstrap

import "fmt"

// RenderError means that a spec cannot be rendered. The error persists until
// the spec or an object that it refers to changes.
type RenderError struct {
	// Field is the field to fix, for instance spec.files[/etc/motd].
	Field string
	// Problem is the message for users.
	Problem string
}

// Error implements error.
func (e *RenderError) Error() string { return e.Field + ": " + e.Problem }

func renderErrorf(field, format string, args ...any) *RenderError {
	return &RenderError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
