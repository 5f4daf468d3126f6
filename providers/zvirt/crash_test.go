package zvirt

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// rich is a machine that takes every kind of step, in a group of its own.
func rich(m *infrav1.NovaZVirtMachine) {
	m.Labels[clusterv1.MachineDeploymentNameLabel] = m.Name
	m.Spec.Network.Interfaces = []infrav1.NovaZVirtInterface{{}, {Network: "storage/storage"}}
	m.Spec.Disks.Data = []infrav1.NovaZVirtDataDisk{{Name: "etcd", SizeGiB: 8}}
	m.Spec.Tags = []infrav1.NovaZVirtTag{{Name: "nova"}}
	m.Spec.AffinityLabels = []string{"fast"}
	headless := true
	m.Spec.Hardware.Headless = &headless
}

// enrich makes what a rich machine names.
func (b *bed) enrich() {
	b.admin("POST", "/tags", "<tag><name>nova</name></tag>")
	label := b.idOf(b.admin("POST", "/affinitylabels", "<affinity_label><name>fast</name></affinity_label>"))
	for _, host := range []string{"host1", "host2"} {
		id := b.idOf(b.admin("GET", "/hosts?search=name%3D"+host, ""))
		b.admin("POST", "/affinitylabels/"+label+"/hosts", fmt.Sprintf(`<host id=%q/>`, id))
	}
}

// TestCrash loses the connection at every request of a machine's life, before
// the engine has carried it out and after, and a new manager goes on.
func TestCrash(t *testing.T) {
	b := newBed(t)
	b.enrich()
	name := func(n int) string { return fmt.Sprintf("crash-%d", n) }
	b.engine.ResetRequests()
	m := b.create(name(0), rich)
	creating := b.engine.Requests()
	b.engine.ResetRequests()
	b.until(b.connector, going(m), false, "release")
	deleting := b.engine.Requests()
	b.connector.Close()

	n := 0
	for _, phase := range []struct {
		name     string
		requests map[string]int
	}{{"create", creating}, {"delete", deleting}} {
		for request, times := range phase.requests {
			method, path, _ := strings.Cut(request, " /")
			if path == "" {
				continue // a path that is empty stands for any
			}
			outcomes := []bool{false, true}
			if method == "GET" {
				times, outcomes = 1, outcomes[:1] // nothing comes of it
			}
			for nth := range min(times, 2) {
				for _, after := range outcomes {
					n++
					b.crash(phase.name, name(n), ovirtsim.Fault{
						Method: method, Path: strings.ReplaceAll(path, "{}", "*"), Skip: nth, After: after, Drop: true,
					}, request, nth+1)
				}
			}
		}
	}
	t.Logf("%d crashes", n)
}

// crash lets a machine live with one manager until a fault hits and with
// another from then on, to the end.
func (b *bed) crash(phase, name string, f ovirtsim.Fault, request string, nth int) {
	b.t.Helper()
	what := fmt.Sprintf("%s: %+v", phase, f)
	m := b.machine(name, rich)
	first := NewConnector(b.objects, b.options)
	if phase == "delete" {
		b.until(first, m, true, "rest")
		m = going(m)
	}
	b.engine.ResetRequests()
	b.engine.Inject(f)
	goal := map[string]string{"create": "rest", "delete": "release"}[phase]
	b.Eventually(func() bool {
		_, did, _ := b.reconcile(first, m, true)
		return did == goal || b.engine.Requests()[request] >= nth
	}).Should(BeTrue(), what)
	first.Close()
	b.engine.ClearFaults()

	second := NewConnector(b.objects, b.options)
	defer second.Close()
	if phase == "create" {
		b.until(second, m, true, "rest")
		b.Expect(b.named(name)).To(HaveLen(1), what)
		b.Expect(b.named(name)[0].NICs).To(HaveLen(2), what)
		b.Expect(b.named(name)[0].Drive).NotTo(BeEmpty(), what)
		b.Expect(b.diskNames(name+"-boot-")).To(HaveLen(1), what)
		return
	}
	b.until(second, m, false, "release")
	b.Expect(b.named(name)).To(BeEmpty(), what)
	b.Eventually(func() []string { return b.diskNames(name + "-") }).Should(BeEmpty(), what)
	_, err := second.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func() string { return b.groupsOf("Default") }).ShouldNot(ContainSubstring(name+"-preferred"), what)
}

// groupsOf returns the affinity groups of a cluster of the engine.
func (b *bed) groupsOf(cluster string) string {
	id := b.idOf(b.admin("GET", "/clusters?search=name%3D"+cluster, ""))
	return b.admin("GET", "/clusters/"+id+"/affinitygroups", "")
}
