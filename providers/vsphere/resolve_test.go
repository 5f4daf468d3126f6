package vsphere

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/resolve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Many machines at once need as many requests as each alone; names are
// resolved once.
func TestConcurrentUse(t *testing.T) {
	b := newBed(t)
	b.inspect(b.cluster) // most callers get an error while the session is being opened
	const many = 20
	clones := func() float64 {
		return b.metric("nova_hypervisor_requests_total", "method", "CloneVM_Task", "result", "success")
	}
	before := clones()
	var wg sync.WaitGroup
	failed := make(chan error, many)
	for i := range many {
		m := b.machine(fmt.Sprintf("m%d", i))
		wg.Go(func() {
			d, err := b.connector.Connect(b.ctx(), m)
			if err == nil {
				err = d.Create(b.ctx(), m, createOptions)
			}
			failed <- err
		})
	}
	wg.Wait()
	for range many {
		b.Expect(<-failed).NotTo(HaveOccurred())
	}
	for i := range many {
		b.waitForState(b.machine(fmt.Sprintf("m%d", i)), hypervisor.Running)
	}
	sent := b.vc.Requests()
	b.Expect(sent).To(HaveKeyWithValue("CloneVM_Task", many))
	b.Expect(sent).To(HaveKeyWithValue("Login", 1))
	b.Expect(sent["ModifyListView"]).To(BeNumerically("<=", many))
	maps.DeleteFunc(sent, func(method string, _ int) bool { return method == "CloneVM_Task" || method == "ModifyListView" })
	shared := 0
	for _, n := range sent {
		shared += n
	}
	b.Expect(shared).To(BeNumerically("<=", 60), "%v", sent)
	t.Logf("shared requests: %v", sent)
	b.Expect(clones() - before).To(BeEquivalentTo(many))
}

// Names are resolved again when vCenter reports that the object does not exist
// any more.
func TestStaleTemplate(t *testing.T) {
	b := newBed(t)
	b.create("m")
	d, ok := b.connect(b.machine("next")).(*driver)
	b.Expect(ok).To(BeTrue())
	stale, err := d.names.SizeTemplate(b.ctx(), &b.machine("next").Spec, "")
	b.Expect(err).NotTo(HaveOccurred())
	stale.Ref.Value = "vm-9999"

	m := b.machine("next")
	err = d.Create(b.ctx(), m, createOptions)
	if err == nil {
		b.Eventually(func() error { return b.failure(m) }).Should(HaveOccurred())
	}
	b.Expect(d.Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// ageNames makes the names that were resolved as old as they would be after d.
func (d *driver) ageNames(age time.Duration) {
	now := d.session.names.Now
	d.session.names.Now = func() time.Time { return now().Add(age) }
}

// Another template may get a template's name. vCenter does not report that the
// first one does not exist any more.
func TestTemplateThatIsReplaced(t *testing.T) {
	const next = "next-image"
	b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{Templates: []vcenter.Template{{Name: vcenter.DefaultTemplate}, {Name: next}}}})
	old, image := b.vm(vcenter.DefaultTemplate), b.vm(next)
	byUUID, byReference := b.machine("m").Spec, b.machine("m").Spec
	byUUID.Template = vspherev1.NovaVSphereTemplate{ID: old.UUID(b.ctx())}
	byReference.Template = vspherev1.NovaVSphereTemplate{ID: old.Reference().Value}
	b.create("first")
	d, ok := b.connect(b.machine("m")).(*driver)
	b.Expect(ok).To(BeTrue())
	source := func(machine *vspherev1.NovaVSphereMachineSpec) *spec.Template {
		found, err := d.names.SizeTemplate(b.ctx(), machine, "")
		b.Expect(err).NotTo(HaveOccurred())
		return found
	}
	for _, machine := range []*vspherev1.NovaVSphereMachineSpec{&byUUID, &byReference} {
		b.Expect(source(machine).Current).To(BeNil())
	}

	b.wait(old.Rename(b.ctx(), "last-image"))
	b.wait(image.Rename(b.ctx(), vcenter.DefaultTemplate))
	b.addSnapshot("last-image", "base")
	d.ageNames(resolve.MaxAge / 2)
	b.vc.ResetRequests()
	b.Expect(source(&b.machine("m").Spec).Ref).To(Equal(old.Reference()))
	b.Expect(b.total()).To(BeZero(), "it is not read for each machine")
	d.ageNames(resolve.MaxAge)
	b.Expect(source(&b.machine("m").Spec).Ref).To(Equal(image.Reference()))
	for _, machine := range []*vspherev1.NovaVSphereMachineSpec{&byUUID, &byReference} {
		b.Expect(source(machine).Current).NotTo(BeNil(), "linked clones share the snapshot that is the current one")
	}
}

// A machine that does not fit a template is not rejected because of the
// template's state before it was fixed.
func TestTemplateThatIsFixed(t *testing.T) {
	b := newBed(t)
	b.create("first")
	m := b.machine("m")
	b.Expect(b.vc.AttachDisk(b.vmNamed(vcenter.DefaultTemplate)[0].Ref, vcenter.Disk{File: "[LocalDS_0] more/disk.vmdk"})).To(Succeed())
	devices, err := b.vm(vcenter.DefaultTemplate).Device(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	disks := spec.NewDiskDevices(devices).Disks
	b.Expect(disks).To(HaveLen(2))
	m.Spec.Disks.Template = []vspherev1.NovaVSphereTemplateDisk{{Name: spec.LabelOf(disks[1]), SizeGiB: 2}}
	b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
	b.waitForState(m, hypervisor.Running)
}
