package vcenter

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// RESTError is an error response of the REST API.
type RESTError struct {
	status int
	// Kind is vCenter's name of the error, such as
	// com.vmware.vapi.std.errors.not_found.
	Kind    string
	message string
}

func (f *RESTError) Error() string { return f.message }

// newRESTError parses an error response. The two generations of the API use
// slightly different formats.
func newRESTError(status int, body []byte) *RESTError {
	type text struct {
		Default string `json:"default_message"`
	}
	var answer struct {
		Type     string `json:"type"`
		Kind     string `json:"error_type"`
		Messages []text `json:"messages"`
		Value    struct {
			Messages []text `json:"messages"`
		} `json:"value"`
	}
	f := &RESTError{status: status, message: fmt.Sprintf("vCenter's REST API returned %d %s", status, http.StatusText(status))}
	if json.Unmarshal(body, &answer) != nil {
		return f
	}
	f.Kind = answer.Type + answer.Kind
	var messages []string
	for _, m := range append(answer.Messages, answer.Value.Messages...) {
		if m.Default != "" {
			messages = append(messages, strings.TrimRight(m.Default, ". "))
		}
	}
	if len(messages) > 0 {
		f.message = strings.Join(messages, "; ")
	}
	return f
}

// RESTReason returns the condition reason for a request that the REST API
// rejected.
func RESTReason(err error) string {
	if RESTStatus(err) == http.StatusForbidden {
		return infrav1.PermissionDeniedReason
	}
	return infrav1.HypervisorErrorReason
}

// RESTStatus returns the HTTP status of a request that the REST API rejected,
// or 0.
func RESTStatus(err error) int {
	if f, ok := errors.AsType[*RESTError](err); ok {
		return f.status
	}
	return 0
}

// ConvertRESTError converts an error of the REST API to an Error with vCenter's
// message.
func ConvertRESTError(err error) error {
	f, ok := errors.AsType[*RESTError](err)
	if !ok {
		return err
	}
	return &hypervisor.Error{Reason: RESTReason(f), Err: fmt.Errorf("%w", f)}
}
