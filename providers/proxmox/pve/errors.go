package pve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/transport"
)

// Error is an error response.
type Error struct {
	// Status is the HTTP status code.
	Status int
	// Detail is the text of Proxmox VE.
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// maxDetail limits the text of an error.
const maxDetail = 1024

// newError returns the error of a response: its message, or the reason phrase of the
// status, and the invalid parameters.
func newError(status int, message, phrase string, invalid map[string]string) *Error {
	parts := []string{strings.TrimSpace(cmp.Or(strings.TrimSpace(message), phrase, http.StatusText(status)))}
	for _, name := range slices.Sorted(maps.Keys(invalid)) {
		parts = append(parts, fmt.Sprintf("%s: %s", name, strings.TrimSpace(invalid[name])))
	}
	detail := strings.Join(parts, " ")
	return &Error{Status: status, Detail: strings.Join(strings.Fields(detail[:min(len(detail), maxDetail)]), " ")}
}

// IsStatus reports whether err is a response with a status code.
func IsStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// IsDown reports whether no server of the API responded.
func IsDown(err error) bool {
	return transport.IsUnreachable(err) || errors.Is(err, ErrOtherCluster) || IsStatus(err, http.StatusBadGateway) || IsStatus(err, http.StatusServiceUnavailable)
}

// IsAmbiguous reports whether a failed request may have been executed: it got no
// response, or the node that responded got none from the node of the VM.
func IsAmbiguous(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return IsDown(err) || ok && e.Status >= http.StatusBadGateway
}

// IsMissingVolume reports whether the volume of a request does not exist. The text for a
// storage that cannot be reached also contains "does not exist".
func IsMissingVolume(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Status == http.StatusNotFound || strings.Contains(e.Detail, "volume '") && strings.Contains(e.Detail, "does not exist") ||
		strings.HasPrefix(e.Detail, "unlink") && strings.Contains(e.Detail, "No such file"))
}

// IsExisting reports whether a guest has the ID of a clone.
func IsExisting(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && strings.Contains(e.Detail, "already exists")
}

// IsUnmanaged reports whether the HA manager does not manage the VM of a request.
func IsUnmanaged(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && strings.Contains(e.Detail, "not HA managed")
}

// IsMissing reports whether the object of a request does not exist.
func IsMissing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	text := ""
	if ok {
		text = strings.ToLower(e.Detail)
	}
	return ok && (e.Status == http.StatusNotFound || strings.Contains(text, "does not exist") || strings.Contains(text, "no such"))
}
