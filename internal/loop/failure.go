package loop

import (
	"cmp"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// maxMessage is the limit of an event's note, which is the shortest limit for a
// message.
const maxMessage = 1000

var numbers = regexp.MustCompile(`[0-9]+`)

// Failure returns the condition of the given type for err.
//
// A failed connection has other numbers (ports, addresses) in each error. The
// first numbers stay as long as nothing else changes, so that the condition
// does not flap and events are not repeated. Another cause changes the message.
func Failure(from conditions.Getter, conditionType string, err error) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason(err), Message: Sentence(err)}
	if last := conditions.Get(from, conditionType); c.Reason == infrav1.EndpointUnreachableReason &&
		last != nil && last.Status == c.Status && last.Reason == c.Reason &&
		numbers.ReplaceAllString(last.Message, "") == numbers.ReplaceAllString(c.Message, "") {
		c.Message = last.Message
	}
	return c
}

// reason distinguishes failures of the hypervisor from those of the management
// cluster.
func reason(err error) string {
	fallback := infrav1.HypervisorErrorReason
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		fallback = clusterv1.InternalErrorReason
	}
	return cmp.Or(hypervisor.ReasonFor(err, fallback), fallback)
}

// Sentence converts err to a message: one line, capitalized, no full stop,
// short enough for an event.
func Sentence(err error) string {
	text := strings.TrimRight(strings.ReplaceAll(err.Error(), "\n", "; "), ". ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
