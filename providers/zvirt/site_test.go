package zvirt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// withSecondDataCenter adds a second data center to the engine.
func withSecondDataCenter(o *ovirtsim.Options) { o.Inventory.DataCenters = []string{"Elsewhere"} }

func (b *bed) updateCluster(change func(*zvirtv1.NovaZVirtClusterSpec)) {
	b.t.Helper()
	change(&b.cluster.Spec)
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
}

func TestInspect(t *testing.T) {
	b := newBed(t, withSecondDataCenter)
	domain := func(name string) zvirtv1.NovaZVirtFailureDomain {
		return zvirtv1.NovaZVirtFailureDomain{FailureDomain: infrav1.FailureDomain{Name: name}}
	}
	b.updateCluster(func(c *zvirtv1.NovaZVirtClusterSpec) {
		one, two := domain("one"), domain("two")
		one.Networks = []infrav1.FailureDomainNetwork{{Network: "storage/storage"}}
		two.ControlPlane = ptr.To(false)
		c.FailureDomains = []zvirtv1.NovaZVirtFailureDomain{one, two}
	})
	site, err := b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(site.Version).To(HavePrefix(ovirtsim.DefaultVersion))
	b.Expect(site.ID).To(HaveLen(36))
	b.Expect(b.connect(b.machine("m")).(hypervisor.EndpointIdentifier).EndpointID()).To(Equal(site.ID))
	b.Expect(site.FailureDomains).To(Equal([]clusterv1.FailureDomain{
		{Name: "one", ControlPlane: ptr.To(true)}, {Name: "two", ControlPlane: ptr.To(false)},
	}))
	b.engine.ResetRequests()
	_, err = b.connector.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.engine.Requests()).NotTo(HaveKey("GET /clusters"))

	for _, c := range []struct {
		change func(*zvirtv1.NovaZVirtFailureDomain)
		reason string
		words  string
	}{
		{func(d *zvirtv1.NovaZVirtFailureDomain) { d.Placement.ComputeCluster = "nowhere" }, infrav1.PlacementNotFoundReason, `placement.computeCluster "nowhere" does not exist`},
		{func(d *zvirtv1.NovaZVirtFailureDomain) { d.Placement.Datacenter = "Elsewhere" }, infrav1.PlacementNotFoundReason, `placement.computeCluster "Default" does not exist`},
		{func(d *zvirtv1.NovaZVirtFailureDomain) { d.Placement.StorageDomain = "nowhere" }, infrav1.PlacementNotFoundReason, `"nowhere" does not exist`},
		{func(d *zvirtv1.NovaZVirtFailureDomain) { d.Networks = []infrav1.FailureDomainNetwork{{Network: "a/b"}} }, infrav1.PlacementNotFoundReason, `networks[0].network "a`},
		{func(d *zvirtv1.NovaZVirtFailureDomain) { d.Placement.Hosts = []string{"host9"} }, infrav1.PlacementNotFoundReason, `placement.hosts "host9"`},
		{func(d *zvirtv1.NovaZVirtFailureDomain) { d.AffinityLabel = "none" }, infrav1.PlacementNotFoundReason, `affinityLabel "none"`},
		{func(d *zvirtv1.NovaZVirtFailureDomain) { d.Template.Name = "none" }, infrav1.TemplateNotFoundReason, `template "none"`},
	} {
		changed := b.cluster.DeepCopy()
		c.change(&changed.Spec.FailureDomains[1])
		_, err := b.connector.Inspect(b.ctx(), changed)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(c.reason), c.words)
		b.Expect(err).To(MatchError(And(ContainSubstring(c.words), ContainSubstring(`failure domain "two"`))))
	}
}

func TestZones(t *testing.T) {
	b := newBed(t)
	b.addReferences()
	b.updateCluster(func(c *zvirtv1.NovaZVirtClusterSpec) {
		c.FailureDomains = []zvirtv1.NovaZVirtFailureDomain{{
			FailureDomain: infrav1.FailureDomain{Name: "b", Networks: []infrav1.FailureDomainNetwork{{Network: "storage/storage"}}},
			Placement:     zvirtv1.NovaZVirtPlacement{StorageDomain: "data2"}, AffinityLabel: "fast",
		}}
	})
	m := b.machine("worker-1", func(m *zvirtv1.NovaZVirtMachine) { m.Spec.CloneMode = infrav1.CloneFull })
	l := launch
	l.Zone = "nowhere"
	b.Expect(hypervisor.ReasonFor(b.connect(m).Create(b.ctx(), m, l), "")).To(Equal(infrav1.PlacementNotFoundReason))
	l.Zone = "b"
	b.Expect(b.connect(m).Create(b.ctx(), m, l)).To(Succeed())
	vm := b.reconcileUntil(b.newConnector(), m, true, "rest")
	b.Expect(vm.Zone).To(Equal("b"))
	got := b.vmsNamed("worker-1")[0]
	b.Expect(got.NICs[0].Network).To(Equal("storage"))
	domain := b.idOf(b.admin("GET", "/storagedomains?search=name%3Ddata2", ""))
	b.Expect(b.admin("GET", "/vms/"+got.ID+"/diskattachments?follow=disk", "")).To(ContainSubstring(domain))
	labels := func() string { return b.admin("GET", "/vms/"+got.ID+"/affinitylabels", "") }
	b.Expect(labels()).To(ContainSubstring("<name>fast</name>"))

	b.admin("POST", "/affinitylabels", "<affinity_label><name>slow</name></affinity_label>")
	b.updateCluster(func(c *zvirtv1.NovaZVirtClusterSpec) { c.FailureDomains[0].AffinityLabel = "slow" })
	b.reconcileUntil(b.newConnector(), m, true, "rest")
	b.Expect(labels()).To(And(ContainSubstring("<name>slow</name>"), ContainSubstring("<name>fast</name>")))
}

func TestMissingObjects(t *testing.T) {
	b := newBed(t)
	for name, c := range map[string]struct {
		change func(*zvirtv1.NovaZVirtMachineSpec)
		reason string
	}{
		"template":      {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Template.Name = "none" }, infrav1.TemplateNotFoundReason},
		"version":       {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Template.Version = 7 }, infrav1.TemplateNotFoundReason},
		"instance-type": {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Hardware.InstanceType = "none" }, infrav1.PlacementNotFoundReason},
		"cluster":       {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Placement.ComputeCluster = "none" }, infrav1.PlacementNotFoundReason},
		"domain":        {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Placement.StorageDomain = "none" }, infrav1.PlacementNotFoundReason},
		"profile":       {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Network.Interfaces[0].Network = "none/none" }, infrav1.PlacementNotFoundReason},
		"tag":           {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Tags = []zvirtv1.NovaZVirtTag{{Name: "none"}} }, infrav1.PlacementNotFoundReason},
		"group":         {func(m *zvirtv1.NovaZVirtMachineSpec) { m.AffinityGroups = []string{"none"} }, infrav1.PlacementNotFoundReason},
		"label":         {func(m *zvirtv1.NovaZVirtMachineSpec) { m.AffinityLabels = []string{"none"} }, infrav1.PlacementNotFoundReason},
	} {
		m := b.machine("no-"+name, func(m *zvirtv1.NovaZVirtMachine) { c.change(&m.Spec) })
		err := b.expectFailure(m, c.reason)
		b.Expect(err).To(MatchError(Or(ContainSubstring(`"none`), ContainSubstring("version 7"))), name)
	}
}

// An object that is recreated under its old name has another ID.
func TestOutdatedIDs(t *testing.T) {
	b := newBed(t)
	b.create("worker-1")
	network := b.idOf(b.admin("GET", "/networks?search=name%3Dstorage", ""))
	storage := func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Network.Interfaces[0].Network = "storage/storage" }
	m := b.create("worker-2", storage)
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	profile := b.idOf(b.admin("GET", "/networks/"+network+"/vnicprofiles", ""))
	b.admin("DELETE", "/vnicprofiles/"+profile, "")
	b.admin("POST", "/vnicprofiles", fmt.Sprintf("<vnic_profile><name>storage</name><network id=%q/></vnic_profile>", network))
	b.create("worker-3", storage)
	b.Expect(b.vmsNamed("worker-3")[0].NICs[0].Network).To(Equal("storage"))
}

func TestTemplateByID(t *testing.T) {
	b := newBed(t)
	id := b.idOf(b.admin("GET", "/templates?search=name%3D"+templateName, ""))
	b.create("worker-1", func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Template = zvirtv1.NovaZVirtTemplate{ID: id} })
}

func TestLatestVersionOfATemplate(t *testing.T) {
	b := newBed(t)
	vm := b.foreignVM("source", "Default", "")
	b.admin("POST", "/templates", fmt.Sprintf(`<template><name>%s</name><version><version_name>two</version_name></version><vm id=%q/></template>`, templateName, vm))
	answer := b.admin("GET", "/templates?search=name%3D"+templateName, "")
	b.Expect(strings.Count(answer, "<template ")).To(Equal(2))
	b.Eventually(func() string { return b.admin("GET", "/templates?search=name%3D"+templateName, "") }).ShouldNot(ContainSubstring("<status>locked"))
	m := b.machine("worker-1", func(m *zvirtv1.NovaZVirtMachine) { m.Spec.Template.Version = 1 })
	b.reconcileUntil(b.connector, m, true, "rest")
	latest := b.machine("worker-2")
	b.reconcileUntil(b.connector, latest, false, "create")
	b.Expect(b.vmsNamed("worker-2")[0].Template).NotTo(Equal(b.vmsNamed("worker-1")[0].Template))
}

func TestAffinity(t *testing.T) {
	b := newBed(t)
	group := "nova-workers-preferred-" + clusterID
	one, two := b.create("worker-1"), b.create("worker-2")
	b.Expect(strings.Count(b.groupsOf("Default"), "<affinity_group ")).To(Equal(1))
	b.Expect(b.groupsOf("Default")).To(And(ContainSubstring("<name>"+group+"</name>"), ContainSubstring(b.vmsNamed("worker-1")[0].ID), ContainSubstring(b.vmsNamed("worker-2")[0].ID)))
	b.Expect(b.vmsNamed("worker-1")[0].Host).NotTo(Equal(b.vmsNamed("worker-2")[0].Host))

	b.reconcileUntil(b.connector, markDeleted(one), false, "release")
	b.Expect(b.groupsOf("Default")).To(ContainSubstring(group))
	b.reconcileUntil(b.connector, markDeleted(two), false, "release")
	b.Eventually(func() string { return b.groupsOf("Default") }).ShouldNot(ContainSubstring(group))
}

func TestAffinityOfConcurrentMachines(t *testing.T) {
	b := newBed(t)
	const count = 5
	b.Eventually(func() int {
		resting := 0
		for i := range count {
			m := b.machine(fmt.Sprintf("worker-%d", i))
			if _, did, err := b.reconcile(b.connector, m, false); err == nil && did == "rest" {
				resting++
			}
		}
		return resting
	}).Should(Equal(count))
	b.Expect(strings.Count(b.groupsOf("Default"), "<affinity_group ")).To(Equal(1))
	for i := range count {
		b.Expect(b.groupsOf("Default")).To(ContainSubstring(b.vmsNamed(fmt.Sprintf("worker-%d", i))[0].ID))
	}
}

// Only groups with the mark of this cluster are removed, also while other
// machines are being created.
func TestEmptyGroupsOfOthersAreKept(t *testing.T) {
	b := newBed(t)
	cluster := b.idOf(b.admin("GET", "/clusters?search=name%3DDefault", ""))
	group := func(name, description string) {
		b.admin("POST", "/clusters/"+cluster+"/affinitygroups",
			"<affinity_group><name>"+name+"</name><description>"+description+"</description></affinity_group>")
	}
	group("nova-administrator", "created by a user")
	group("nova-workers-preferred-other", "nova-cluster/11111111-5b1c-4c0e-9d3c-6d3d4c0f4e11 Keeps machines apart.")
	group("nova-workers-required-"+clusterID, "nova-cluster/"+clusterID+" Keeps machines apart.")
	b.Expect(b.engine.SetTiming(ovirtsim.TimePoweringUp, time.Hour)).To(Succeed())
	slow := b.machine("worker-2", func(m *zvirtv1.NovaZVirtMachine) { m.Labels[clusterv1.MachineDeploymentNameLabel] = "others" })
	b.reconcileUntil(b.connector, slow, false, "start")
	b.Eventually(func() string { return b.groupsOf("Default") }).ShouldNot(ContainSubstring("nova-workers-required-" + clusterID))
	b.Expect(b.groupsOf("Default")).To(And(ContainSubstring("nova-administrator"), ContainSubstring("nova-workers-preferred-other"), ContainSubstring("nova-others-preferred-"+clusterID)))
}

// antiAffinity of an existing machine can change: its VM leaves the group of
// the previous value and joins the group of the new one.
func TestAntiAffinityChanges(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.Expect(b.groupsOf("Default")).To(ContainSubstring("nova-workers-preferred-"))
	m.Spec.AntiAffinity = infrav1.AntiAffinityRequired
	b.reconcileUntil(b.connector, m, true, "rest")
	b.Expect(b.groupsOf("Default")).To(ContainSubstring("nova-workers-required-"))
	b.Eventually(func() string { return b.groupsOf("Default") }).ShouldNot(ContainSubstring("nova-workers-preferred-"))
	m.Spec.AntiAffinity = infrav1.AntiAffinityNone
	b.reconcileUntil(b.connector, m, true, "rest")
	b.Eventually(func() string { return b.groupsOf("Default") }).ShouldNot(ContainSubstring("nova-workers-"))
	b.Expect(b.vmsNamed("worker-1")).To(HaveLen(1))
}

func TestHardAffinity(t *testing.T) {
	b := newBed(t)
	hard := func(m *zvirtv1.NovaZVirtMachine) { m.Spec.AntiAffinity = infrav1.AntiAffinityRequired }
	b.create("worker-1", hard)
	b.create("worker-2", hard)
	b.Expect(b.groupsOf("Default")).To(And(ContainSubstring("nova-workers-required-"), ContainSubstring("<enforcing>true</enforcing>")))
	err := b.expectFailure(b.machine("worker-3", hard), infrav1.InsufficientResourcesReason)
	b.Expect(err).To(HaveOccurred())
}

func TestAffinityIsRestored(t *testing.T) {
	b := newBed(t)
	cluster := b.idOf(b.admin("GET", "/clusters?search=name%3DDefault", ""))
	own := b.idOf(b.admin("POST", "/clusters/"+cluster+"/affinitygroups", "<affinity_group><name>theirs</name></affinity_group>"))
	m := b.create("worker-1", func(m *zvirtv1.NovaZVirtMachine) {
		m.Spec.AntiAffinity, m.Spec.AffinityGroups = infrav1.AntiAffinityNone, []string{"theirs"}
	})
	vm := b.vmsNamed(m.Name)[0].ID
	b.Expect(b.groupsOf("Default")).To(And(ContainSubstring(vm), Not(ContainSubstring("nova-"))))
	b.admin("DELETE", "/clusters/"+cluster+"/affinitygroups/"+own+"/vms/"+vm, "")
	b.reconcileUntil(b.connector, m, true, "sync")
	b.Eventually(func() string { return b.groupsOf("Default") }).Should(ContainSubstring(vm))
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.groupsOf("Default")).To(ContainSubstring("theirs"), "another user created it")
}

func TestSize(t *testing.T) {
	b := newBed(t)
	template := func(change func(*zvirtv1.NovaZVirtMachineSpec)) *zvirtv1.NovaZVirtMachineTemplate {
		out := &zvirtv1.NovaZVirtMachineTemplate{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "t", Labels: map[string]string{clusterv1.ClusterNameLabel: b.cluster.Name},
		}}
		out.Spec.Template.Spec.Template.Name = templateName
		change(&out.Spec.Template.Spec)
		return out
	}
	const gib = int64(1) << 30
	for name, c := range map[string]struct {
		change func(*zvirtv1.NovaZVirtMachineSpec)
		want   hypervisor.Size
	}{
		"the template's": {func(*zvirtv1.NovaZVirtMachineSpec) {}, hypervisor.Size{CPUs: 1, MemoryBytes: gib, DiskBytes: 10 * gib, Architecture: "amd64"}},
		"said": {func(m *zvirtv1.NovaZVirtMachineSpec) {
			m.Hardware = zvirtv1.NovaZVirtHardware{CPUs: 6, CPUTopology: zvirtv1.NovaZVirtCPUTopology{CPUTopology: infrav1.CPUTopology{CoresPerSocket: 3}}, MemoryMiB: 2048}
			m.Disks.Boot.SizeGiB = 40
		}, hypervisor.Size{CPUs: 6, MemoryBytes: 2 * gib, DiskBytes: 40 * gib, Architecture: "amd64"}},
		"the instance type's": {func(m *zvirtv1.NovaZVirtMachineSpec) { m.Hardware.InstanceType = "Large" }, hypervisor.Size{CPUs: 2, MemoryBytes: 8 * gib, DiskBytes: 10 * gib, Architecture: "amd64"}},
	} {
		got, err := b.connector.Size(b.ctx(), template(c.change))
		b.Expect(err).NotTo(HaveOccurred(), name)
		b.Expect(got).To(Equal(c.want), name)
	}
	_, err := b.connector.Size(b.ctx(), &zvirtv1.NovaZVirtMachineTemplate{})
	b.Expect(hypervisor.IsWaiting(err)).To(BeTrue())
}
