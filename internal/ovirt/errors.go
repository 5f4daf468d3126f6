package ovirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Error is an answer of the engine that is no success.
type Error struct {
	// Status is the code of HTTP.
	Status int
	// Detail is what the engine said, in its own words.
	Detail string

	// page is set when a web server answered, not the engine.
	page  bool
	cause error
}

func (e *Error) Error() string { return e.Detail }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// UnreachableError means that the engine gave no answer. What was asked for may
// have happened.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// IsStatus reports whether the engine answered err with a code.
func IsStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// IsDown reports whether no engine answered: the way is cut, or the web server
// in front of it says that it is not there.
func IsDown(err error) bool {
	if _, ok := errors.AsType[*UnreachableError](err); ok {
		return true
	}
	e, ok := errors.AsType[*Error](err)
	return ok && e.page
}

// IsAmbiguous reports whether what was asked for may have happened although it
// failed: nobody said no.
func IsAmbiguous(err error) bool {
	return err != nil && (IsDown(err) || IsStatus(err, http.StatusInternalServerError))
}

// fault is how the engine refuses. An action carries it inside.
type fault struct {
	XMLName xml.Name
	Status  string `xml:"status"`
	Reason  string `xml:"reason"`
	Detail  string `xml:"detail"`
	Inner   *fault `xml:"fault"`
	Message string `xml:"message"`
}

// refusal makes an Error of an answer.
func refusal(status int, answer []byte) *Error {
	e := &Error{Status: status, page: status >= http.StatusBadGateway}
	var f fault
	if err := xml.Unmarshal(answer, &f); err == nil && f.XMLName.Local != "html" {
		e.page = false
		if f.Inner != nil {
			f = *f.Inner
		}
		// The detail is a list in brackets of what the engine has to say.
		e.Detail = strings.TrimRight(strings.Trim(strings.TrimSpace(f.Detail), "[]"), ". ")
		for _, other := range []string{f.Reason, f.Message} {
			if e.Detail == "" {
				e.Detail = other
			}
		}
	}
	if e.Detail == "" {
		e.Detail = fmt.Sprintf("the engine answered %d %s", status, http.StatusText(status))
	}
	return e
}

// failedAction reports whether an answer is an action that failed. It does so
// with any code.
func failedAction(answer []byte) bool {
	if !strings.Contains(string(answer[:min(len(answer), 256)]), "<action") {
		return false
	}
	var f fault
	return xml.Unmarshal(answer, &f) == nil && f.XMLName.Local == "action" && (f.Status == "failed" || f.Inner != nil)
}
