package vsphere

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Many machines at once cost what each costs alone; names are resolved once.
func TestManyAtOnce(t *testing.T) {
	b := newBed(t)
	b.inspected(b.cluster) // while the session is opened, most are sent away
	const many = 20
	var wg sync.WaitGroup
	failed := make(chan error, many)
	for i := range many {
		m := b.machine(fmt.Sprintf("m%d", i))
		wg.Go(func() {
			d, err := b.connector.Connect(b.ctx(), m)
			if err == nil {
				err = d.Create(b.ctx(), m, launch)
			}
			failed <- err
		})
	}
	wg.Wait()
	for range many {
		b.Expect(<-failed).NotTo(HaveOccurred())
	}
	for i := range many {
		b.reaches(b.machine(fmt.Sprintf("m%d", i)), hypervisor.Running)
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
	b.Expect(testutil.ToFloat64(requests.WithLabelValues(b.vc.Address, "CloneVM_Task", "success"))).To(BeEquivalentTo(many))
}

// What was resolved is asked for again when vCenter says it is no more.
func TestStaleTemplate(t *testing.T) {
	b := newBed(t)
	b.create("m")
	d, ok := b.connect(b.machine("next")).(*driver)
	b.Expect(ok).To(BeTrue())
	g, err := aim(d.cluster, &b.machine("next").Spec, "")
	b.Expect(err).NotTo(HaveOccurred())
	stale, err := d.session.paths.template(b.ctx(), &g)
	b.Expect(err).NotTo(HaveOccurred())
	stale.ref.Value = "vm-9999"

	m := b.machine("next")
	err = d.Create(b.ctx(), m, launch)
	if err == nil {
		b.Eventually(func() error { _, err := b.look(m); return err }).Should(HaveOccurred())
	}
	b.Expect(d.Create(b.ctx(), m, launch)).To(Succeed())
	b.reaches(m, hypervisor.Running)
}
