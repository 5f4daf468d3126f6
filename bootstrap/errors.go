package bootstrap

import "fmt"

// RenderError says that a spec cannot be rendered. It stays until someone
// changes the spec or what it names.
type RenderError struct {
	// Field is the field to mend, for instance spec.files[/etc/motd].
	Field string
	// Problem is what is wrong with it, for people.
	Problem string
}

// Error implements error.
func (e *RenderError) Error() string { return e.Field + ": " + e.Problem }

func renderErrorf(field, format string, args ...any) *RenderError {
	return &RenderError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
