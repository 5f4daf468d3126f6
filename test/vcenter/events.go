package vcenter

import (
	"fmt"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// reconfigured returns the newest event of a reconfiguration of a VM, or nil.
func reconfigured(ctx *simulator.Context, vm ref) (newest *types.VmReconfiguredEvent) {
	manager := ctx.Map.EventManager()
	body, ok := manager.QueryEvents(ctx, &types.QueryEvents{Filter: types.EventFilterSpec{
		EventTypeId: []string{"VmReconfiguredEvent"},
		Entity:      &types.EventFilterSpecByEntity{Entity: vm, Recursion: types.EventFilterSpecRecursionOptionSelf},
	}}).(*methods.QueryEventsBody)
	if !ok || body.Res == nil {
		return nil
	}
	for _, e := range body.Res.Returnval {
		if event, ok := e.(*types.VmReconfiguredEvent); ok && (newest == nil || event.Key > newest.Key) {
			newest = event
		}
	}
	return newest
}

// hideClone takes the settings out of the event of a reconfiguration that is a
// part of a clone here. For vCenter a clone is no reconfiguration, and its events
// have no settings.
func hideClone(ctx *simulator.Context, vm ref) {
	if event := reconfigured(ctx, vm); event != nil {
		event.ConfigSpec, event.ConfigChanges = types.VirtualMachineConfigSpec{}, nil
	}
}

// completeEvent adds to the event of a reconfiguration how the settings of the VM
// changed. A real vCenter has the old values there, and keeps events for a month.
func completeEvent(ctx *simulator.Context, vm ref, before map[string]string, change []types.BaseOptionValue) {
	event := reconfigured(ctx, vm)
	if event == nil {
		return
	}
	var modified, added, deleted []string
	for _, option := range change {
		key := option.GetOptionValue().Key
		value := fmt.Sprint(option.GetOptionValue().Value)
		old, had := before[key]
		switch {
		case value == "":
			deleted = append(deleted, fmt.Sprintf("config.extraConfig(%q): (key = %q, value = %q)", key, key, old))
		case had:
			modified = append(modified, fmt.Sprintf("config.extraConfig(%q).value: %q -> %q", key, old, value))
		default:
			added = append(added, fmt.Sprintf("config.extraConfig(%q): (key = %q, value = %q)", key, key, value))
		}
	}
	event.ConfigChanges = &types.ChangesInfoEventArgument{
		Modified: strings.Join(modified, "\n"), Added: strings.Join(added, "\n"), Deleted: strings.Join(deleted, "\n"),
	}
}
