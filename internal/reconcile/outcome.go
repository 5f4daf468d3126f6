package reconcile

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Outcome ends a reconcile before the object has its desired state, for a known cause. Steps return it
// as an error: no error means that the step is done, an error that is no Outcome means that it failed.
//
//nolint:errname // It is an error only so that a step can return it.
type Outcome struct {
	// Reason and Message are those of the condition.
	Reason, Message string
	// Waiting means that the cause is a normal part of the object's life. Otherwise a user or another
	// controller must remove it.
	Waiting bool
	// RequeueAfter is the delay until the next reconcile. Defaults to PollInterval: an event reports
	// the end of the cause, and the requeue covers events that are missed.
	RequeueAfter time.Duration
}

// Wait returns the Outcome for a cause that ends without a user.
func Wait(reason, format string, args ...any) *Outcome {
	return &Outcome{Reason: reason, Message: fmt.Sprintf(format, args...), Waiting: true}
}

// Blocked returns the Outcome for a cause that a user or another controller must remove.
func Blocked(reason, format string, args ...any) *Outcome {
	return &Outcome{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// After sets the delay until the next reconcile, for a cause whose end triggers no event.
func (o *Outcome) After(delay time.Duration) *Outcome {
	o.RequeueAfter = delay
	return o
}

// Error implements error.
func (o *Outcome) Error() string { return o.Message }

// Result returns the result of the reconcile.
func (o *Outcome) Result() ctrl.Result {
	return ctrl.Result{RequeueAfter: cmp.Or(o.RequeueAfter, PollInterval)}
}

// Condition returns the condition of a type that shows the cause.
func (o *Outcome) Condition(conditionType string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: o.Reason, Message: o.Message}
}
