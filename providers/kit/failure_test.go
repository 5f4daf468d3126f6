package kit

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestFailure(t *testing.T) {
	unreachable := func(text string) error {
		return fmt.Errorf("observing VM: %w", &hypervisor.Error{Reason: infrav1.EndpointUnreachableReason, Err: errors.New(text)})
	}
	cases := map[string]struct {
		before          *metav1.Condition
		err             error
		reason, message string
	}{
		"Known": {
			err:    fmt.Errorf("creating VM: %w", &hypervisor.Error{Reason: infrav1.NameConflictReason, Err: errors.New("taken")}),
			reason: infrav1.NameConflictReason, message: "Creating VM: taken",
		},
		"Unknown":  {err: errors.New("odd"), reason: infrav1.HypervisorErrorReason, message: "Odd"},
		"Nameless": {err: &hypervisor.Error{Err: errors.New("odd")}, reason: infrav1.HypervisorErrorReason, message: "Odd"},
		"Management": {
			err:    fmt.Errorf("reading: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("no rule"))),
			reason: clusterv1.InternalErrorReason, message: `Reading: secrets "s" is forbidden: no rule`,
		},
		"UnreachableFirst": {err: unreachable("port 1"), reason: infrav1.EndpointUnreachableReason, message: "Observing VM: port 1"},
		"UnreachableStill": {
			before: &metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.EndpointUnreachableReason, Message: "Observing VM: port 1"},
			err:    unreachable("port 2"), reason: infrav1.EndpointUnreachableReason, message: "Observing VM: port 1",
		},
		"UnreachableForAnotherCause": {
			before: &metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.EndpointUnreachableReason, Message: "Observing VM: no answer in time"},
			err:    unreachable("unknown authority"), reason: infrav1.EndpointUnreachableReason, message: "Observing VM: unknown authority",
		},
		"UnreachableAfterAnother": {
			before: &metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.CredentialsInvalidReason, Message: "No"},
			err:    unreachable("port 2"), reason: infrav1.EndpointUnreachableReason, message: "Observing VM: port 2",
		},
		"OtherWords": {
			before: &metav1.Condition{Status: metav1.ConditionFalse, Reason: infrav1.HypervisorErrorReason, Message: "Odd"},
			err:    errors.New("odder"), reason: infrav1.HypervisorErrorReason, message: "Odder",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &vspherev1.NovaVSphereMachine{}
			if tc.before != nil {
				tc.before.Type = clusterv1.ReadyCondition
				conditions.Set(m, *tc.before)
			}
			got := Failure(m, clusterv1.ReadyCondition, tc.err)
			if got.Status != metav1.ConditionFalse || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("Failure() = %s %s %q, want False %s %q", got.Status, got.Reason, got.Message, tc.reason, tc.message)
			}
		})
	}
}
