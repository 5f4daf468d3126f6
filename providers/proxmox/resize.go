package proxmox

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
)

// resize increases sizes of a VM that runs: first its disk, then CPUs and memory. Proxmox
// VE accepts CPUs and memory that it cannot add while the VM runs, and keeps them for the
// next start.
func (d *driver) resize(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) error {
	v, err := d.look(m)
	if err != nil || v.state != hypervisor.Running || !v.Complete {
		return err
	}
	due, err := kit.Increases(m, plan.Sizes(m, v.VM))
	if err != nil || len(due) == 0 {
		return err
	}
	if _, is := kit.WithField(due, resize.BootDisk); is {
		return d.extendDisk(ctx, m, &v)
	}
	form := plan.Resized(due)
	// The list shows a size some seconds after the VM has it.
	if left, err := d.pendingSizes(ctx, v.VM, form); err != nil || len(left) == 0 {
		return err
	}
	if err := d.session.Act(ctx, v.id, site.Action{
		Verb: site.Increase, VMID: v.VM.VMID, Node: v.VM.Node,
		Request: pve.Request{Method: http.MethodPut, Path: site.VMPath(v.VM.Node, v.VM.VMID, "config"), Form: form},
	}); err != nil {
		return fmt.Errorf("increasing sizes: %w", err)
	}
	left, err := d.pendingSizes(ctx, v.VM, form)
	if len(left) > 0 {
		return hypervisor.Failure(infrav1.HypervisorErrorReason,
			"Proxmox VE did not change %s while the VM runs, and keeps the change for its next start: the option hotplug of the VM is not as the machine was created with", strings.Join(left, " and "))
	}
	return err
}

// pendingSizes returns the options that a VM that runs has with other values.
func (d *driver) pendingSizes(ctx context.Context, vm *pve.Resource, wanted url.Values) (left []string, err error) {
	var current map[string]any
	if err := d.session.Do(ctx, pve.Request{
		Method: http.MethodGet, Path: site.VMPath(vm.Node, vm.VMID, "config"), Form: url.Values{"current": {"1"}}, Into: &current,
	}); err != nil {
		return nil, fmt.Errorf("reading VM: %w", err)
	}
	for _, option := range slices.Sorted(maps.Keys(wanted)) {
		if fmt.Sprint(current[option]) != wanted.Get(option) {
			left = append(left, option)
		}
	}
	return left, nil
}

// extendDisk extends the boot disk of a VM.
func (d *driver) extendDisk(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine, v *view) error {
	config, err := d.session.Config(ctx, v.VM.Node, v.VM.VMID)
	if err != nil {
		return fmt.Errorf("reading VM: %w", err)
	}
	form, smaller := plan.Resize(m, config)
	if !smaller {
		return nil // the list of guests is behind
	}
	return d.session.Act(ctx, v.id, site.Action{
		Verb: site.Resize, VMID: v.VM.VMID, Node: v.VM.Node,
		Request: pve.Request{Method: http.MethodPut, Path: site.VMPath(v.VM.Node, v.VM.VMID, "resize"), Form: form},
	})
}
