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

// TestContract moves a VM through the states that drivers report.
func TestContract(t *testing.T) {
	full := errors.New("full")
	h := New()
	d, err := Connector[object]{Hypervisor: h}.Connect(t.Context(), object{})
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name     string
		do       func(context.Context) error
		err      error
		want     hypervisor.State
		reported error
	}{
		{"no VM", nil, nil, hypervisor.Absent, nil},
		{"a call that fails", func(ctx context.Context) error {
			h.FailNext(Create, full)
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, full, hypervisor.Absent, nil},
		{"work that fails later", func(ctx context.Context) error {
			h.FailLater(Create, full)
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, nil, hypervisor.Absent, full},
		{"the failure stays until the next action", nil, nil, hypervisor.Absent, full},
		{"work that is held", func(ctx context.Context) error {
			h.Repair(Create)
			h.Hold(Create)
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, nil, hypervisor.Busy, nil},
		{"held work continues", nil, nil, hypervisor.Busy, nil},
		{"a call that is repeated", func(ctx context.Context) error {
			return d.Create(ctx, object{}, hypervisor.CreateOptions{})
		}, nil, hypervisor.Busy, nil},
		{"work that is released", func(context.Context) error { h.Release(Create); return nil }, nil, hypervisor.Stopped, nil},
		{"a reply that is lost", func(ctx context.Context) error {
			h.LoseReply(Start, full)
			return d.Start(ctx, object{})
		}, full, hypervisor.Running, nil},
		{"an administrator powers it off", func(context.Context) error { h.PowerOff(KeyOf(object{})); return nil }, nil, hypervisor.Stopped, nil},
		{"start again", func(ctx context.Context) error { return d.Start(ctx, object{}) }, nil, hypervisor.Running, nil},
		{"a guest that ignores the request", func(ctx context.Context) error {
			h.Ignore(Shutdown)
			return d.Shutdown(ctx, object{})
		}, nil, hypervisor.Running, nil},
		{"a guest that shuts down", func(ctx context.Context) error {
			h.StopIgnoring(Shutdown)
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
		if err != nil || vm.State != step.want || !errors.Is(vm.LastFailure, step.reported) {
			t.Errorf("%s: Observe() = %+v, %v, want %s, %v", step.name, vm, err, step.want, step.reported)
		}
	}
	if got := h.Created(KeyOf(object{})); got != 1 {
		t.Errorf("created %d VMs, want 1", got)
	}
	if got := len(h.changes); got == 0 {
		t.Error("no change was pushed")
	}
}

// TestSync syncs a VM step by step: the difference to its machine, and its user
// data. The user data is removed only after the node has joined.
func TestSync(t *testing.T) {
	h := New()
	h.SetNewOutOfSync("a NIC is missing")
	d, err := Connector[object]{Hypervisor: h}.Connect(t.Context(), object{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Create(t.Context(), object{}, hypervisor.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		joined    bool
		outOfSync string
		userData  bool
	}{{false, "", true}, {false, "", true}, {true, "", false}} {
		vm, err := d.Observe(t.Context(), object{})
		if err != nil {
			t.Fatal(err)
		}
		for _, syncer := range d.Syncers() {
			if syncer.Pending(&vm) && (step.joined || !syncer.AfterJoin) {
				if err := syncer.Apply(t.Context(), object{}); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		vm, err = d.Observe(t.Context(), object{})
		if err != nil || vm.OutOfSync != step.outOfSync || vm.UserData != step.userData {
			t.Errorf("Observe() = %+v, %v, want %+v", vm, err, step)
		}
	}
}

type named string

func (named) GetNamespace() string { return "ns" }
func (n named) GetName() string    { return string(n) }

// TestLimit checks that a creation above the limit returns an error with
// Waiting set, and that queued machines are notified when a creation ends.
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
	h.Release(Create)
	delivered := map[string]bool{}
	for len(h.changes) > 0 {
		delivered[(<-h.changes).Name] = true
	}
	if !delivered["b"] {
		t.Error("the change of b was not delivered")
	}
	if err := d.Create(t.Context(), "b", hypervisor.CreateOptions{}); err != nil {
		t.Errorf("err = %v after a slot became free", err)
	}
}

// TestZone checks that a failure domain that does not exist is rejected.
func TestZone(t *testing.T) {
	h := New()
	h.SetEndpoint(hypervisor.Key{}, hypervisor.Endpoint{ID: "x", FailureDomains: []clusterv1.FailureDomain{{Name: "a"}}})
	d, err := Connector[object]{Hypervisor: h}.Connect(t.Context(), object{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Create(t.Context(), object{}, hypervisor.CreateOptions{Zone: "b"}); !hypervisor.IsTerminal(err) {
		t.Errorf("err = %v, want a terminal error", err)
	}
	if err := d.Create(t.Context(), object{}, hypervisor.CreateOptions{Zone: "a"}); err != nil {
		t.Error(err)
	}
	if i, ok := d.(hypervisor.EndpointIdentifier); !ok || i.EndpointID() != "x" {
		t.Error("the driver does not return the ID of its endpoint")
	}
}
