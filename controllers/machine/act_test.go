package machine

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// An action that fails repeatedly is reported as one failure, and not as a success each time that it
// is accepted.
func TestActReportsOnlyFirstAttempts(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := vspherev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler[*vspherev1.NovaVSphereMachine]{
		Client: clientfake.NewClientBuilder().WithScheme(scheme).Build(), Recorder: recorder,
	}
	accept := func(context.Context) error { return nil }
	for _, failure := range []error{nil, errors.New("creating VM: full"), errors.New("creating VM: full")} {
		s := &scope[*vspherev1.NovaVSphereMachine]{infra: &vspherev1.NovaVSphereMachine{}, action: create, failure: failure}
		if _, err := r.act(t.Context(), s, accept); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(recorder.Events); got != 1 {
		t.Errorf("%d events, want 1", got)
	}
}

// The event of a step before the creation does not report that the VM is created.
func TestEventsOfCreation(t *testing.T) {
	for message, want := range map[string]string{"": "Created", "Deleting the VM vm-7": "Deleting"} {
		s := &scope[*vspherev1.NovaVSphereMachine]{action: create, vm: hypervisor.VM{State: hypervisor.Absent, Message: message}}
		if reason, note := s.acceptedEvent(); reason != want || message != "" && note != message {
			t.Errorf("%q becomes the event %s %q, want %s", message, reason, note, want)
		}
	}
}

// The event of each part names the part: only one of those that wait for the node is the removal of
// the user data.
func TestEventsOfParts(t *testing.T) {
	for part, want := range map[string]string{"UserData": "Cleared", "HighAvailability": "Syncing", "Tags": "Syncing"} {
		s := &scope[*vspherev1.NovaVSphereMachine]{
			action: syncVM, syncer: hypervisor.Syncer[*vspherev1.NovaVSphereMachine]{Name: part, AfterJoin: true}, vm: hypervisor.VM{State: hypervisor.Running},
		}
		if reason, note := s.acceptedEvent(); reason != want || note == "" {
			t.Errorf("%s becomes the event %s %q, want %s", part, reason, note, want)
		}
	}
}
