package resolve

import (
	"slices"
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
)

func TestWithin(t *testing.T) {
	path := []string{"DC0", "vm", "tenants", "blue"}
	for entry, want := range map[string]bool{
		"/DC0/vm/tenants/blue": true, "/DC0/vm/tenants": true, "/DC0/vm/tenants/": true, "/DC0": true, "tenants": true, "blue": true,
		"/DC0/vm/tenants/bl": false, "/DC0/vm/tenant": false, "/DC0/vm/tenants/blue/x": false, "/DC1": false, "/vm/tenants": false,
		"bl": false, "tenants/blue": false, "/DC0/vm/tenants/../red": false, "/DC0/vm/red/../tenants": false, "..": false,
	} {
		if got := isWithin([]string{entry}, path); got != want {
			t.Errorf("within(%q) = %v", entry, got)
		}
	}
	if !isWithin([]string{"/DC1", "/DC0/vm"}, path) || isWithin(nil, path) {
		t.Error("one entry that allows it is enough, and none allows nothing")
	}
}

// The path of an object counts only if it is known up to the root folder,
// which the account itself need not see.
func TestAncestorNames(t *testing.T) {
	at := func(id string) ref { return ref{Type: "Folder", Value: id} }
	entity := func(id, name, above string) types.ObjectContent {
		o := types.ObjectContent{Obj: at(id), PropSet: []types.DynamicProperty{{Name: "name", Val: name}}}
		if above != "" {
			o.PropSet = append(o.PropSet, types.DynamicProperty{Name: "parent", Val: at(above)})
		}
		return o
	}
	root, dc, vm, nova := entity("root", "Datacenters", ""), entity("dc", "DC0", "root"), entity("vm", "vm", "dc"), entity("nova", "nova", "vm")
	for name, tc := range map[string]struct {
		content []types.ObjectContent
		want    []string
	}{
		"whole":          {[]types.ObjectContent{nova, root, vm, dc}, []string{"DC0", "vm", "nova"}},
		"without root":   {[]types.ObjectContent{nova, vm, dc}, []string{"DC0", "vm", "nova"}},
		"with a gap":     {[]types.ObjectContent{nova, dc, root}, nil},
		"no name":        {[]types.ObjectContent{nova, entity("vm", "", "dc"), dc, root}, nil},
		"in a circle":    {[]types.ObjectContent{nova, entity("vm", "vm", "nova"), dc, root}, nil},
		"nothing":        {nil, nil},
		"not the object": {[]types.ObjectContent{vm, dc, root}, nil},
	} {
		got, whole := ancestorNames(tc.content, at("nova"), at("root"))
		if !slices.Equal(got, tc.want) || whole != (tc.want != nil) {
			t.Errorf("%s: %v, %v", name, got, whole)
		}
	}
	if _, whole := ancestorNames([]types.ObjectContent{root}, at("root"), at("root")); whole {
		t.Error("the root folder itself is not within any bound")
	}
}

func TestAllowedExtraConfig(t *testing.T) {
	lent := Bounds{identity: "shared", NovaVSphereBounds: vspherev1.NovaVSphereBounds{ExtraConfigKeys: []string{"isolation.tools.*", "svga.", "disk.own"}}}
	for key, want := range map[string]bool{
		"pciPassthru.use64bitMMIO": true, "PCIPASSTHRU.64bitMMIOSizeGB": true, "pciPassthru0.cfg.enable_uvm": true, "numa.vcpu.preferHT": true,
		"sched.cpu.latencySensitivity": true, "sched.swap.vmxSwapEnabled": true, "monitor_control.x": true,
		"isolation.tools.copy.disable": true, "svga.vramSize": true, "disk.own": true,
		"pciPassthru0.id": false, "pciPassthru0.present": false, "RemoteDisplay.vnc.port": false, "sched.swap.dir": false,
		"ethernet0.networkName": false, "isolation.device": false, "scsi0:1.fileName": false, "disk.owned": false, "sched.swap.vmxSwapEnabled2": false,
	} {
		err := lent.checkExtraConfig([]vspherev1.NovaVSphereExtraConfig{{Name: key}})
		if (err == nil) != want {
			t.Errorf("%s: %v", key, err)
		}
		own := Bounds{}
		if err := own.checkExtraConfig([]vspherev1.NovaVSphereExtraConfig{{Name: key}}); err != nil {
			t.Errorf("%s, with credentials of the cluster's own: %v", key, err)
		}
	}
}
