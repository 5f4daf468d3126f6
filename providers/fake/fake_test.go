package fake

import (
	"context"
	"errors"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

type object struct{}

func (object) GetNamespace() string { return "ns" }
func (object) GetName() string      { return "m" }

// TestContract walks a VM through the states that drivers report.
func TestContract(t *testing.T) {
	full := errors.New("full")
	h := New()
	d, err := Connector[object]{Hypervisor: h}.Connect(t.Context(), object{})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		do   func(context.Context) error
		err  error
		want hypervisor.State
		told error
	}{
		{"nothing", nil, nil, hypervisor.Absent, nil},
		{"a call that fails", func(ctx context.Context) error {
			h.FailNext(Create, full)
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, full, hypervisor.Absent, nil},
		{"work that fails later", func(ctx context.Context) error {
			h.FailLater(Create, full)
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, nil, hypervisor.Absent, full},
		{"which is told once", nil, nil, hypervisor.Absent, nil},
		{"work that is held", func(ctx context.Context) error {
			h.Mend(Create)
			h.Hold(Create)
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, nil, hypervisor.Busy, nil},
		{"and goes on", nil, nil, hypervisor.Busy, nil},
		{"a call that is repeated", func(ctx context.Context) error {
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, nil, hypervisor.Busy, nil},
		{"work that is let go", func(context.Context) error { h.Let(Create); return nil }, nil, hypervisor.Stopped, nil},
		{"a reply that is lost", func(ctx context.Context) error {
			h.LoseReply(Start, full)
			return d.Start(ctx, object{})
		}, full, hypervisor.Running, nil},
		{"somebody powers it off", func(context.Context) error { h.PowerOff(KeyOf(object{})); return nil }, nil, hypervisor.Stopped, nil},
		{"start again", func(ctx context.Context) error { return d.Start(ctx, object{}) }, nil, hypervisor.Running, nil},
		{"a guest that does not listen", func(ctx context.Context) error {
			h.Ignore(Shutdown)
			return d.Shutdown(ctx, object{})
		}, nil, hypervisor.Running, nil},
		{"a guest that listens", func(ctx context.Context) error {
			h.Listen(Shutdown)
			return d.Shutdown(ctx, object{})
		}, nil, hypervisor.Stopped, nil},
		{"delete", func(ctx context.Context) error { return d.Delete(ctx, object{}) }, nil, hypervisor.Absent, nil},
		{"delete again", func(ctx context.Context) error { return d.Delete(ctx, object{}) }, nil, hypervisor.Absent, nil},
	}
	for _, step := range steps {
		if step.do != nil {
			if err := step.do(t.Context()); !errors.Is(err, step.err) {
				t.Errorf("%s: err = %v, want %v", step.name, err, step.err)
			}
		}
		vm, err := d.Observe(t.Context(), object{})
		if vm.State != step.want || !errors.Is(err, step.told) {
			t.Errorf("%s: Observe() = %s, %v, want %s, %v", step.name, vm.State, err, step.want, step.told)
		}
	}
	if got := h.Made(KeyOf(object{})); got != 1 {
		t.Errorf("made %d VMs, want 1", got)
	}
	if got := len(h.changes); got == 0 {
		t.Error("no change was pushed")
	}
}

// TestSettle settles a VM step by step: what surrounds it, then its user data,
// and that only once the node has joined.
func TestSettle(t *testing.T) {
	h := New()
	h.UnsettleNew("a NIC is missing")
	d, err := Connector[object]{Hypervisor: h}.Connect(t.Context(), object{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Create(t.Context(), object{}, hypervisor.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		joined    bool
		unsettled string
		userData  bool
	}{{false, "", true}, {false, "", true}, {true, "", false}} {
		if err := d.Sync(t.Context(), object{}, step.joined); err != nil {
			t.Fatal(err)
		}
		vm, err := d.Observe(t.Context(), object{})
		if err != nil || vm.OutOfSync != step.unsettled || vm.UserData != step.userData {
			t.Errorf("Observe() = %+v, %v, want %+v", vm, err, step)
		}
	}
}

type named string

func (named) GetNamespace() string { return "ns" }
func (n named) GetName() string    { return string(n) }

// TestLimit refuses what goes past the limit as a wait, and calls those who
// wait when a place gets free.
func TestLimit(t *testing.T) {
	h := New()
	h.Limit(1)
	h.Hold(Create)
	d, err := Connector[named]{Hypervisor: h}.Connect(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Create(t.Context(), "a", hypervisor.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Create(t.Context(), "b", hypervisor.CreateOptions{}); !hypervisor.IsWaiting(err) {
			t.Fatalf("err = %v, want a wait", err)
		}
	}
	h.Let(Create)
	called := map[string]bool{}
	for len(h.changes) > 0 {
		called[(<-h.changes).Name] = true
	}
	if !called["b"] {
		t.Error("b was not called")
	}
	if err := d.Create(t.Context(), "b", hypervisor.CreateOptions{}); err != nil {
		t.Errorf("err = %v once there is a place", err)
	}
}

// TestZone refuses a failure domain that the site has not.
func TestZone(t *testing.T) {
	h := New()
	h.SetSite(hypervisor.Key{}, hypervisor.Endpoint{ID: "x", FailureDomains: []clusterv1.FailureDomain{{Name: "a"}}})
	d, err := Connector[object]{Hypervisor: h}.Connect(t.Context(), object{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Create(t.Context(), object{}, hypervisor.CreateOptions{Zone: "b"}); !hypervisor.IsTerminal(err) {
		t.Errorf("err = %v, want a terminal one", err)
	}
	if err := d.Create(t.Context(), object{}, hypervisor.CreateOptions{Zone: "a"}); err != nil {
		t.Error(err)
	}
	if i, ok := d.(hypervisor.EndpointIdentifier); !ok || i.EndpointID() != "x" {
		t.Error("the driver does not say which site it is on")
	}
}
