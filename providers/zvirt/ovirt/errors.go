package ovirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
)

// Error is an error response of the engine.
type Error struct {
	// Status is the HTTP status code.
	Status int
	// Detail is the engine's own message.
	Detail string

	// page is set if a web server responded instead of the engine.
	page  bool
	cause error
}

func (e *Error) Error() string { return e.Detail }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// IsStatus reports whether err is a response of the engine with a status code.
func IsStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// IsDown reports whether no engine responded: it is unreachable, or the web
// server in front of it reports that it is down.
func IsDown(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return transport.IsUnreachable(err) || ok && e.page
}

// IsAmbiguous reports whether a failed request may have been executed: the
// engine did not reject it.
func IsAmbiguous(err error) bool {
	return err != nil && (IsDown(err) || IsStatus(err, http.StatusInternalServerError))
}

// fault is the error document of the engine. An action contains it.
type fault struct {
	XMLName xml.Name
	Status  string `xml:"status"`
	Reason  string `xml:"reason"`
	Detail  string `xml:"detail"`
	Inner   *fault `xml:"fault"`
	Message string `xml:"message"`
}

// refusal converts a response to an Error.
func refusal(status int, answer []byte) *Error {
	e := &Error{Status: status, page: status >= http.StatusBadGateway}
	var f fault
	if err := xml.Unmarshal(answer, &f); err == nil && f.XMLName.Local != "html" {
		e.page = false
		if f.Inner != nil {
			f = *f.Inner
		}
		// The detail is a list of messages in brackets.
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

// failedAction reports whether a response is a failed action. The engine
// returns it with any status code.
func failedAction(answer []byte) bool {
	if !strings.Contains(string(answer[:min(len(answer), 256)]), "<action") {
		return false
	}
	var f fault
	return xml.Unmarshal(answer, &f) == nil && f.XMLName.Local == "action" && (f.Status == "failed" || f.Inner != nil)
}
