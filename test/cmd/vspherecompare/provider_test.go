package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// TestManifests shows that both providers get the same VM spec.
func TestManifests(t *testing.T) {
	f := facts{
		Namespace: "ns", Name: "m-1", Server: "192.0.2.1", Thumbprint: "AA:BB", Template: "image", Folder: "nova",
		Datacenter: "DC0", Pool: "/DC0/host/C0/Resources", Datastore: "ds", Network: "VM Network", CPUs: 4, MemoryMiB: 4096,
	}
	fields := map[string]map[string][]string{
		ours: {
			"datacenter": {"placement", "datacenter"}, "pool": {"placement", "resourcePool"}, "folder": {"placement", "folder"},
			"datastore": {"placement", "datastore"}, "cpus": {"hardware", "cpus"}, "memory": {"hardware", "memoryMiB"},
		},
		theirs: {
			"datacenter": {"datacenter"}, "pool": {"resourcePool"}, "folder": {"folder"},
			"datastore": {"datastore"}, "cpus": {"numCPUs"}, "memory": {"memoryMiB"},
		},
	}
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			g := NewWithT(t)
			cluster, err := p.cluster(f)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cluster.GroupVersionKind()).To(Equal(p.kind(p.clusterKind)))
			server, _, err := unstructured.NestedString(cluster.Object, "spec", "server")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server).To(Equal(f.Server))

			machine, err := p.machine(f)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(machine.GroupVersionKind()).To(Equal(p.kind(p.machineKind)))
			g.Expect(machine.GetName()).To(Equal(f.Name))
			got := map[string]any{}
			for name, path := range fields[p.name] {
				got[name], _, err = unstructured.NestedFieldNoCopy(machine.Object, append([]string{"spec"}, path...)...)
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(got).To(And(
				HaveKeyWithValue("datacenter", f.Datacenter), HaveKeyWithValue("pool", f.Pool), HaveKeyWithValue("folder", f.Folder),
				HaveKeyWithValue("datastore", f.Datastore), HaveKeyWithValue("cpus", BeNumerically("==", f.CPUs)),
				HaveKeyWithValue("memory", BeNumerically("==", f.MemoryMiB)),
			))
		})
	}
}

func TestFlagsOf(t *testing.T) {
	g := NewWithT(t)
	o := options{Flags: []string{"nova-vsphere=--v=4", "capv=--v=2", "nova-vsphere=--concurrency=5"}}
	g.Expect(o.flagsOf(ours)).To(Equal([]string{"--v=4", "--concurrency=5"}))
	g.Expect(o.flagsOf(theirs)).To(Equal([]string{"--v=2"}))
}

// reports stores the reports of guests.
type reports struct {
	vcenter.Reports
	said chan string
}

func (r *reports) SetGuestAddresses(id string, nics []vcenter.GuestNIC) error {
	r.said <- id + " " + nics[0].MAC + " " + nics[0].Addresses[0].String()
	return nil
}

func TestGuests(t *testing.T) {
	g := NewWithT(t)
	r := &reports{said: make(chan string, 2)}
	boots := &guests{boot: 10 * time.Millisecond}
	boots.Attach(r)
	g.Expect(boots.PowerOn(t.Context(), vcenter.VM{Ref: "vm-1", NICs: []vcenter.NIC{{MAC: "00:50:56:80:00:01"}}})).To(Succeed())
	g.Eventually(r.said, 10*time.Second).Should(Receive(Equal("vm-1 00:50:56:80:00:01 10.0.0.1/8")))
	g.Expect(boots.PowerOn(t.Context(), vcenter.VM{Ref: "vm-2"})).To(Succeed(), "a VM without a card has no address")
	g.Expect(address(256).String()).To(Equal("10.0.1.0"))
	g.Consistently(r.said, 50*time.Millisecond).ShouldNot(Receive())
}
