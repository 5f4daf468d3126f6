package kit

import (
	"cmp"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	reconciler "sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

var numbers = regexp.MustCompile(`[0-9]+`)

// Failure returns the condition of the given type for err.
//
// A failed connection has other numbers (ports, addresses) in each error. The
// first numbers stay as long as nothing else changes, so that the condition
// does not flap and events are not repeated. Another cause changes the message.
func Failure(from conditions.Getter, conditionType string, err error) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason(err), Message: reconcile.Sentence(err)}
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
		fallback = infrav1.InternalErrorReason
	}
	return cmp.Or(hypervisor.ReasonFor(err, fallback), fallback)
}

// Retry returns the error that a reconciler returns for err: after a terminal error there is no retry,
// unless the object is being deleted.
func Retry(err error, deleting bool) error {
	if hypervisor.IsTerminal(err) && !deleting {
		return reconciler.TerminalError(err)
	}
	return err
}
