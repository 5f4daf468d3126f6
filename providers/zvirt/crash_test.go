package zvirt

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// fullMachine sets fields so that each kind of step is needed, with an affinity
// group of its own.
func fullMachine(m *zvirtv1.NovaZVirtMachine) {
	m.Labels[clusterv1.MachineDeploymentNameLabel] = m.Name
	m.Spec.Network.Interfaces = []zvirtv1.NovaZVirtInterface{{}, {Network: "storage/storage"}}
	m.Spec.Disks.Data = []zvirtv1.NovaZVirtDataDisk{{Name: "etcd", SizeGiB: 8}}
	m.Spec.Tags = []zvirtv1.NovaZVirtTag{{Name: "nova"}}
	m.Spec.AffinityLabels = []string{"fast"}
	headless := true
	m.Spec.Hardware.Headless = &headless
}

// addReferences creates the objects that a full machine references.
func (b *bed) addReferences() {
	b.admin("POST", "/tags", "<tag><name>nova</name></tag>")
	label := b.idOf(b.admin("POST", "/affinitylabels", "<affinity_label><name>fast</name></affinity_label>"))
	for _, host := range []string{"host1", "host2"} {
		id := b.idOf(b.admin("GET", "/hosts?search=name%3D"+host, ""))
		b.admin("POST", "/affinitylabels/"+label+"/hosts", fmt.Sprintf(`<host id=%q/>`, id))
	}
}

// TestCrash loses the connection at each request in the lifetime of a machine,
// before or after the engine has executed it, and continues with a new manager.
func TestCrash(t *testing.T) {
	b := newBed(t)
	b.addReferences()
	name := func(n int) string { return fmt.Sprintf("crash-%d", n) }
	b.engine.ResetRequests()
	m := b.create(name(0), fullMachine)
	creating := b.engine.Requests()
	b.engine.ResetRequests()
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
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

// crash reconciles a machine with one manager until a fault occurs, and then
// with another manager until the machine is deleted.
func (b *bed) crash(phase, name string, f ovirtsim.Fault, request string, nth int) {
	b.t.Helper()
	description := fmt.Sprintf("%s: %+v", phase, f)
	m := b.machine(name, fullMachine)
	first := NewConnector(b.objects, b.options)
	if phase == "delete" {
		b.reconcileUntil(first, m, true, "rest")
		m = markDeleted(m)
	}
	b.engine.ResetRequests()
	b.engine.Inject(f)
	goal := map[string]string{"create": "rest", "delete": "release"}[phase]
	b.Eventually(func() bool {
		_, did, _ := b.reconcile(first, m, true)
		return did == goal || b.engine.Requests()[request] >= nth
	}).Should(BeTrue(), description)
	first.Close()
	b.engine.ClearFaults()

	second := NewConnector(b.objects, b.options)
	defer second.Close()
	if phase == "create" {
		b.reconcileUntil(second, m, true, "rest")
		b.Expect(b.vmsNamed(name)).To(HaveLen(1), description)
		b.Expect(b.vmsNamed(name)[0].NICs).To(HaveLen(2), description)
		b.Expect(b.vmsNamed(name)[0].Drive).NotTo(BeEmpty(), description)
		b.Expect(b.diskNames(name+"-boot-")).To(HaveLen(1), description)
		return
	}
	b.reconcileUntil(second, m, false, "release")
	b.Expect(b.vmsNamed(name)).To(BeEmpty(), description)
	b.Eventually(func() []string { return b.diskNames(name + "-") }).Should(BeEmpty(), description)
	_, err := second.Inspect(b.ctx(), b.cluster)
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func() string { return b.groupsOf("Default") }).ShouldNot(ContainSubstring(name+"-preferred"), description)
}

// groupsOf returns the affinity groups of a cluster of the engine.
func (b *bed) groupsOf(cluster string) string {
	id := b.idOf(b.admin("GET", "/clusters?search=name%3D"+cluster, ""))
	return b.admin("GET", "/clusters/"+id+"/affinitygroups", "")
}
