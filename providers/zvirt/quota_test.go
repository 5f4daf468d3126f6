package zvirt

import (
	"encoding/xml"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// engineVM returns a VM as the engine reports it.
func (b *bed) engineVM(id string) ovirt.VM {
	b.t.Helper()
	var vm ovirt.VM
	b.Expect(xml.Unmarshal([]byte(b.admin("GET", "/vms/"+id+"?follow=disk_attachments.disk,nics", "")), &vm)).To(Succeed())
	return vm
}

// limitedMachine sets all quotas and profiles of a machine.
func limitedMachine(m *zvirtv1.NovaZVirtMachine) {
	m.Spec.Placement.Quota = "team-a"
	m.Spec.Hardware.CPUProfile = "limited"
	m.Spec.Disks.Boot.Profile = "silver"
	m.Spec.Disks.Data = []zvirtv1.NovaZVirtDataDisk{{Name: "etcd", SizeGiB: 5, Profile: "silver"}}
}

// A data center that enforces quotas rejects VMs and disks without a quota.
func TestQuotaAndProfiles(t *testing.T) {
	b := newBed(t, func(o *ovirtsim.Options) {
		o.Inventory.Quotas = []ovirtsim.QuotaSpec{{Name: "team-a", StorageGiB: 30}, {Name: "team-b"}}
		o.Inventory.CPUProfiles, o.Inventory.DiskProfiles = []string{"limited"}, []string{"silver", "gold"}
	})
	b.Expect(b.expectFailure(b.machine("none"), infrav1.InsufficientResourcesReason)).To(MatchError(ContainSubstring("Quota is not valid")))

	m := b.create("worker-1", limitedMachine)
	vm := b.engineVM(b.vmsNamed(m.Name)[0].ID)
	b.Expect(vm.Quota).NotTo(BeNil())
	b.Expect(vm.CPUProfile).NotTo(BeNil())
	disks := vm.DiskAttachments.Attachments
	b.Expect(disks).To(HaveLen(2))
	for _, a := range disks {
		b.Expect(a.Disk.Quota).To(HaveField("ID", vm.Quota.ID), a.Disk.Alias)
		b.Expect(a.Disk.DiskProfile).NotTo(BeNil(), a.Disk.Alias)
	}
	b.Expect(disks[0].Disk.DiskProfile.ID).To(Equal(disks[1].Disk.DiskProfile.ID))

	for text, change := range map[string]func(*zvirtv1.NovaZVirtMachine){
		`placement.quota "team-c"`:               func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Placement.Quota = "team-c" },
		`hardware.cpuProfile "fast"`:             func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Hardware.CPUProfile = "fast" },
		`disk profile "bronze" of the disk boot`: func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Disks.Boot.Profile = "bronze" },
	} {
		b.Expect(b.expectFailure(b.machine("worker-2", limitedMachine, change), infrav1.PlacementNotFoundReason)).To(MatchError(ContainSubstring(text)))
	}
	full := b.expectFailure(b.machine("worker-3", limitedMachine), infrav1.InsufficientResourcesReason)
	b.Expect(full).To(MatchError(ContainSubstring("Quota has no sufficient storage resources")))
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
}

func TestNetworkCardAndTPM(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.Network.Interfaces[0].Type = zvirtv1.ZVirtInterfaceE1000e
		m.Spec.Hardware.Firmware, m.Spec.Hardware.TrustedPlatformModule = infrav1.FirmwareEFI, ptr.To(true)
	})
	vm := b.engineVM(b.vmsNamed(m.Name)[0].ID)
	b.Expect(vm.NICs.NICs[0].Interface).To(Equal("e1000e"))
	b.Expect(vm.TPMEnabled).To(HaveValue(BeTrue()))

	b.Expect(b.expectFailure(b.machine("worker-2", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.Hardware.Firmware, m.Spec.Hardware.TrustedPlatformModule = infrav1.FirmwareBIOS, ptr.To(true)
	}), infrav1.HypervisorErrorReason)).To(MatchError(ContainSubstring("UEFI")))
}

// A user without an administrative role sees objects only with a filter.
func TestUserRole(t *testing.T) {
	const name, password = "tenant@internal", "user"
	b := newBed(t, func(o *ovirtsim.Options) {
		o.Users = []ovirtsim.UserSpec{{Name: name, Password: password, Permits: documentedPermissions(NewWithT(t)), UserRole: true}}
	})
	identity := b.useIdentity(zvirtv1.NovaZVirtBounds{})
	secret := &corev1.Secret{}
	b.Expect(b.objects.Get(b.ctx(), client.ObjectKey{Namespace: "manager", Name: "account"}, secret)).To(Succeed())
	secret.Data["username"], secret.Data["password"] = []byte(name), []byte(password)
	b.Expect(b.objects.Update(b.ctx(), secret)).To(Succeed())
	m := b.machine("worker-1")
	b.Expect(b.expectFailure(m, infrav1.PermissionDeniedReason)).To(MatchError(ContainSubstring("insufficient permissions")))

	identity.Spec.Filter = ptr.To(true)
	b.Expect(b.objects.Update(b.ctx(), identity)).To(Succeed())
	b.reconcileUntil(b.connector, m, true, "rest")
	b.reconcileUntil(b.newConnector(), m, true, "rest")
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.vmsNamed("worker-1")).To(BeEmpty())

	b.foreignVM("worker-2", "Default", "mine")
	b.Expect(b.expectFailure(b.machine("worker-2"), infrav1.NameConflictReason)).To(MatchError(ContainSubstring("the user cannot see it")))
}
