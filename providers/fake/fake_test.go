package fake

import (
	"context"
	"errors"
	"testing"

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
			return d.Create(ctx, object{}, hypervisor.Launch{})
		}, full, hypervisor.Absent, nil},
		{"work that fails later", func(ctx context.Context) error {
			h.FailLater(Create, full)
			return d.Create(ctx, object{}, hypervisor.Launch{})
		}, nil, hypervisor.Absent, full},
		{"which is told once", nil, nil, hypervisor.Absent, nil},
		{"work that is held", func(ctx context.Context) error {
			h.Mend(Create)
			h.Hold(Create)
			return d.Create(ctx, object{}, hypervisor.Launch{})
		}, nil, hypervisor.Busy, nil},
		{"and goes on", nil, nil, hypervisor.Busy, nil},
		{"a call that is repeated", func(ctx context.Context) error {
			return d.Create(ctx, object{}, hypervisor.Launch{})
		}, nil, hypervisor.Busy, nil},
		{"work that is let go", func(context.Context) error { h.Let(Create); return nil }, nil, hypervisor.Stopped, nil},
		{"a reply that is lost", func(ctx context.Context) error {
			h.LoseReply(Start, full)
			return d.Start(ctx, object{})
		}, full, hypervisor.Running, nil},
		{"somebody powers it off", func(context.Context) error { h.PowerOff(KeyOf(object{})); return nil }, nil, hypervisor.Stopped, nil},
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
