package clients

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

var _ = Describe("govc", func() {
	var (
		s    *site
		govc func(ctx context.Context, args ...string) string
		// refused is govc for a command that fails.
		refused func(ctx context.Context, args ...string) string
		clone   func(ctx context.Context, name string)
	)

	BeforeEach(func(ctx context.Context) {
		program := build(ctx, "govc")["govc"]
		s = startSite(ctx)
		password, _ := s.Userinfo().Password()
		run := func(ctx context.Context, args ...string) (string, int) {
			return s.run(ctx, s.home, []string{
				"GOVC_URL=" + s.URL().String(), "GOVC_USERNAME=" + s.Userinfo().Username(), "GOVC_PASSWORD=" + password,
				"GOVC_TLS_CA_CERTS=" + s.ca, "GOVC_PERSIST_SESSION=false",
			}, program, args...)
		}
		govc = func(ctx context.Context, args ...string) string {
			GinkgoHelper()
			out, code := run(ctx, args...)
			Expect(code).To(BeZero(), out)
			return out
		}
		refused = func(ctx context.Context, args ...string) string {
			GinkgoHelper()
			out, code := run(ctx, args...)
			Expect(code).NotTo(BeZero(), out)
			return out
		}
		clone = func(ctx context.Context, name string) {
			GinkgoHelper()
			govc(ctx, "vm.clone", "-vm", vcenter.DefaultTemplate, "-folder", vmFolder, "-pool", pool, "-ds", store,
				"-net", "DC0_DVPG0", "-c", "4", "-m", "4096", "-on=false", name)
		}
	})

	It("lists the inventory", func(ctx context.Context) {
		Expect(govc(ctx, "about")).To(MatchRegexp(`API type: +VirtualCenter`))
		Expect(govc(ctx, "about")).To(MatchRegexp(`Version: +` + regexp.QuoteMeta(vcenter.DefaultVersion)))
		Expect(strings.Fields(govc(ctx, "ls"))).To(ConsistOf("/DC0/vm", "/DC0/host", "/DC0/datastore", "/DC0/network"))
		Expect(strings.Fields(govc(ctx, "ls", "/DC0/vm"))).To(ConsistOf(vmFolder, "/DC0/vm/"+vcenter.DefaultTemplate))
		Expect(strings.Fields(govc(ctx, "find", "/", "-type", "m"))).To(ConsistOf("/DC0/vm/" + vcenter.DefaultTemplate))
		Expect(strings.Fields(govc(ctx, "find", "/", "-type", "p"))).To(ContainElement(pool))
		Expect(refused(ctx, "vm.power", "-on", "missing")).To(ContainSubstring("vm 'missing' not found"))
	})

	It("clones a VM from a template, changes it, and deletes it", func(ctx context.Context) {
		clone(ctx, "vm")
		vm := s.vm("vm")
		Expect(vm).To(And(HaveField("CPUs", 4), HaveField("MemoryMiB", 4096), HaveField("PoweredOn", BeFalse())))
		Expect(vm.NICs).To(ConsistOf(HaveField("Network", "DC0_DVPG0")))
		Expect(s.has("[" + store + "] vm/vm.vmdk")).To(BeTrue())
		Expect(refused(ctx, "vm.clone", "-vm", vcenter.DefaultTemplate, "-folder", vmFolder, "-pool", pool, "-ds", store, "vm")).
			To(ContainSubstring("already exists"))

		govc(ctx, "vm.change", "-vm", "vm", "-c", "8", "-m", "8192", "-e", "guestinfo.color=red", "-annotation", "changed")
		govc(ctx, "vm.power", "-on", "vm")
		var info struct {
			VirtualMachines []struct {
				Summary types.VirtualMachineSummary `json:"summary"`
			} `json:"virtualMachines"`
		}
		Expect(json.Unmarshal([]byte(govc(ctx, "vm.info", "-json", vmFolder+"/vm")), &info)).To(Succeed())
		Expect(info.VirtualMachines).To(HaveLen(1))
		read := info.VirtualMachines[0].Summary
		Expect(read.Config).To(And(HaveField("NumCpu", BeEquivalentTo(8)), HaveField("MemorySizeMB", BeEquivalentTo(8192)), HaveField("Annotation", "changed")))
		Expect(read.Runtime.PowerState).To(Equal(types.VirtualMachinePowerStatePoweredOn))
		Expect(govc(ctx, "vm.info", "-e", "vm")).To(MatchRegexp(`guestinfo.color: +red`))
		Expect(refused(ctx, "vm.power", "-on", "vm")).To(ContainSubstring("current state"))

		govc(ctx, "vm.destroy", "vm")
		Expect(s.names()).To(ConsistOf(vcenter.DefaultTemplate))
		Expect(s.has("[" + store + "] vm/vm.vmdk")).To(BeFalse())
		Expect(strings.Fields(govc(ctx, "datastore.ls", "-ds", store))).To(BeEmpty())
	})

	It("creates a VM without a template", func(ctx context.Context) {
		govc(ctx, "vm.create", "-folder", vmFolder, "-pool", pool, "-ds", store, "-net", "DC0_DVPG0", "-net.adapter", "vmxnet3",
			"-c", "2", "-m", "1024", "-disk", "4G", "-disk.controller", "pvscsi", "-on=false", "vm")
		govc(ctx, "vm.network.add", "-vm", "vm", "-net", "VM Network", "-net.adapter", "vmxnet3")
		vm := s.vm("vm")
		Expect(vm).To(And(HaveField("CPUs", 2), HaveField("MemoryMiB", 1024), HaveField("PoweredOn", BeFalse())))
		Expect(vm.NICs).To(HaveExactElements(HaveField("Network", "DC0_DVPG0"), HaveField("Network", "VM Network")))
		Expect(s.has("[" + store + "] vm/vm.vmdk")).To(BeTrue())
		govc(ctx, "vm.power", "-on", "vm")
		govc(ctx, "vm.destroy", "vm")
		Expect(s.names()).To(ConsistOf(vcenter.DefaultTemplate))
	})

	It("creates, grows, detaches and attaches disks", func(ctx context.Context) {
		const file = "[" + store + "] vm/data.vmdk"
		clone(ctx, "vm")
		govc(ctx, "vm.disk.create", "-vm", "vm", "-name", "vm/data", "-size", "5G", "-ds", store)
		Expect(s.vm("vm").DataDisksGiB).To(ConsistOf(BeEquivalentTo(5)))
		Expect(s.has(file)).To(BeTrue())
		govc(ctx, "vm.disk.change", "-vm", "vm", "-disk.filePath", file, "-size", "8G")
		Expect(s.vm("vm").DataDisksGiB).To(ConsistOf(BeEquivalentTo(8)))

		disk := regexp.MustCompile(`disk-\d+-1`).FindString(govc(ctx, "device.ls", "-vm", "vm"))
		Expect(disk).NotTo(BeEmpty())
		govc(ctx, "device.remove", "-vm", "vm", "-keep", disk)
		Expect(s.vm("vm").DataDisksGiB).To(BeEmpty())
		Expect(s.has(file)).To(BeTrue(), "-keep is set")
		govc(ctx, "vm.disk.attach", "-vm", "vm", "-disk", "vm/data.vmdk", "-ds", store, "-link=false")
		Expect(s.vm("vm").DataDisksGiB).To(HaveLen(1))
		Expect(refused(ctx, "vm.disk.attach", "-vm", "vm", "-disk", "vm/missing.vmdk", "-ds", store)).To(ContainSubstring("device '0'"))

		govc(ctx, "vm.destroy", "vm")
		Expect(s.has(file)).To(BeFalse(), "it was attached")
	})

	It("tags VMs", func(ctx context.Context) {
		clone(ctx, "vm")
		govc(ctx, "tags.category.create", "-t", "VirtualMachine", "site")
		govc(ctx, "tags.create", "-c", "site", "north")
		govc(ctx, "tags.create", "-c", "site", "south")
		govc(ctx, "tags.attach", "-c", "site", "north", vmFolder+"/vm")
		Expect(strings.Fields(govc(ctx, "tags.attached.ls", "-r", vmFolder+"/vm"))).To(ConsistOf("north"))
		Expect(strings.Fields(govc(ctx, "tags.attached.ls", "north"))).To(ConsistOf("VirtualMachine:" + s.vm("vm").Ref))
		govc(ctx, "tags.detach", "-c", "site", "north", vmFolder+"/vm")
		Expect(strings.Fields(govc(ctx, "tags.attached.ls", "-r", vmFolder+"/vm"))).To(BeEmpty())
		govc(ctx, "tags.rm", "-c", "site", "north")
		Expect(govc(ctx, "tags.ls", "-c", "site")).To(And(ContainSubstring("south"), Not(ContainSubstring("north"))))
	})

	It("takes snapshots, reverts to them, and removes them", func(ctx context.Context) {
		clone(ctx, "vm")
		govc(ctx, "snapshot.create", "-vm", "vm", "-m=false", "before")
		govc(ctx, "vm.change", "-vm", "vm", "-c", "8", "-e", "guestinfo.color=red")
		govc(ctx, "snapshot.create", "-vm", "vm", "-m=false", "after")
		govc(ctx, "vm.power", "-on", "vm")
		govc(ctx, "snapshot.revert", "-vm", "vm", "before")
		Expect(s.vm("vm")).To(And(HaveField("CPUs", 4), HaveField("PoweredOn", BeFalse()), HaveField("ExtraConfig", Not(HaveKey("guestinfo.color")))))
		govc(ctx, "snapshot.revert", "-vm", "vm", "after")
		Expect(s.vm("vm")).To(And(HaveField("CPUs", 8), HaveField("ExtraConfig", HaveKeyWithValue("guestinfo.color", "red"))))

		govc(ctx, "snapshot.remove", "-vm", "vm", "before")
		Expect(strings.Fields(govc(ctx, "snapshot.tree", "-vm", "vm"))).To(Equal([]string{"after", "."}))
		govc(ctx, "snapshot.remove", "-vm", "vm", "after")
		Expect(strings.Fields(govc(ctx, "snapshot.tree", "-vm", "vm"))).To(BeEmpty())
		Expect(refused(ctx, "snapshot.revert", "-vm", "vm", "after")).To(ContainSubstring("snapshot"))
	})

	It("reports events and tasks", func(ctx context.Context) {
		clone(ctx, "vm")
		govc(ctx, "vm.power", "-on", "vm")
		govc(ctx, "vm.power", "-off", "vm")
		Expect(govc(ctx, "events", "-n", "50", vmFolder+"/vm")).To(ContainSubstring("Clone of " + vcenter.DefaultTemplate + " completed"))
		tasks := govc(ctx, "tasks", "-n", "50", vmFolder+"/vm")
		Expect(tasks).To(MatchRegexp(`PowerOnVM +vm +` + regexp.QuoteMeta(vcenter.DefaultUsername) + `.* success`))
		Expect(tasks).To(MatchRegexp(`PowerOffVM +vm +.* success`))
		Expect(tasks).NotTo(ContainSubstring("CloneVM"), "a clone is a task of its source")
		Expect(govc(ctx, "tasks", "-n", "50")).To(MatchRegexp(`CloneVM +` + regexp.QuoteMeta(vcenter.DefaultTemplate) + ` +.* success`))
	})

	It("moves and renames VMs", func(ctx context.Context) {
		clone(ctx, "vm")
		govc(ctx, "folder.create", "/DC0/vm/other")
		govc(ctx, "object.mv", vmFolder+"/vm", "/DC0/vm/other")
		govc(ctx, "object.rename", "/DC0/vm/other/vm", "renamed")
		Expect(strings.Fields(govc(ctx, "find", "/", "-type", "m"))).To(ConsistOf("/DC0/vm/other/renamed", "/DC0/vm/"+vcenter.DefaultTemplate))
		ref := s.vm("renamed").Ref
		for _, host := range []string{"DC0_C0_H0", "DC0_C0_H1"} {
			govc(ctx, "vm.migrate", "-host", host, "renamed")
			Expect(s.vm("renamed").Host).To(Equal(host))
			Expect(govc(ctx, "vm.info", "renamed")).To(MatchRegexp(`Host: +` + host))
		}
		govc(ctx, "vm.migrate", "-ds", "LocalDS_0", "renamed")
		Expect(govc(ctx, "vm.info", "-r", "renamed")).To(MatchRegexp(`Storage: +LocalDS_0\b`))
		Expect(govc(ctx, "device.info", "-vm", "renamed", "disk-*")).To(MatchRegexp(`File: +\[LocalDS_0\]`))
		Expect(strings.Fields(govc(ctx, "datastore.ls", "-ds", store))).To(BeEmpty())
		Expect(s.vm("renamed").Ref).To(Equal(ref))
	})

	It("does not disturb machines of this project", func(ctx context.Context) {
		m := newMachine(ctx, s, "m")
		ours := s.vm("m")
		By("copying its VM, with the settings that name the machine")
		govc(ctx, "vm.clone", "-vm", vmFolder+"/m", "-folder", "/DC0/vm", "-pool", pool, "-ds", store, "-on=false", "copy")
		govc(ctx, "vm.change", "-vm", "/DC0/vm/copy", "-c", "8")
		govc(ctx, "vm.power", "-on", "/DC0/vm/copy")
		m.reaches(ctx, hypervisor.Running)
		Expect(s.vm("m")).To(Equal(ours))

		By("moving, renaming and migrating the VM itself")
		govc(ctx, "folder.create", "/DC0/vm/other")
		govc(ctx, "object.mv", vmFolder+"/m", "/DC0/vm/other")
		govc(ctx, "object.rename", "/DC0/vm/other/m", "renamed")
		govc(ctx, "vm.migrate", "-ds", "LocalDS_0", "/DC0/vm/other/renamed")
		m.reaches(ctx, hypervisor.Running)
		Expect(s.has("[LocalDS_0] m/m.vmdk")).To(BeTrue())
		govc(ctx, "vm.power", "-off", "/DC0/vm/other/renamed")
		m.reaches(ctx, hypervisor.Stopped)

		By("deleting the machine")
		m.delete(ctx)
		Expect(s.names()).To(ConsistOf(vcenter.DefaultTemplate, "copy"))
		Expect(s.has("[LocalDS_0] m/m.vmdk")).To(BeFalse())
		Expect(s.has("[" + store + "] copy/copy.vmdk")).To(BeTrue())
	})

	It("creates a role with the privileges of the guide, and grants it", func(ctx context.Context) {
		privileges := guidePrivileges()
		Expect(len(privileges)).To(BeNumerically(">", 25))
		govc(ctx, append([]string{"role.create", "nova"}, privileges...)...)
		Expect(strings.Fields(govc(ctx, "role.ls", "nova"))).To(ContainElements(privileges))
		Expect(refused(ctx, "role.create", "nova-typo", "VirtualMachine.Config.CpuCount")).To(ContainSubstring("InvalidArgument"))
		Expect(refused(ctx, "role.create", "nova", "Network.Assign")).To(ContainSubstring("AlreadyExists"))
		govc(ctx, "permissions.set", "-principal", "nova@vsphere.local", "-role", "nova", "-propagate", "/DC0")
		Expect(govc(ctx, "permissions.ls", "/DC0")).To(MatchRegexp(`nova +/DC0 +nova@vsphere.local +Yes`))
		govc(ctx, "permissions.remove", "-principal", "nova@vsphere.local", "/DC0")
		Expect(govc(ctx, "permissions.ls", "/DC0")).NotTo(ContainSubstring("nova@vsphere.local"))
		govc(ctx, "role.remove", "nova")
		Expect(govc(ctx, "role.ls")).NotTo(MatchRegexp(`(?m)^nova\b`))

		By("limiting the account")
		clone(ctx, "vm")
		s.SetPrivileges("VirtualMachine.Config.Memory")
		Expect(refused(ctx, "vm.change", "-vm", "vm", "-c", "8")).To(ContainSubstring("ermission"))
		Expect(refused(ctx, "role.create", "mine", "Network.Assign")).To(ContainSubstring("ermission"))
		govc(ctx, "vm.change", "-vm", "vm", "-m", "8192")
	})
})

// guidePrivileges are the privileges that the guide lists for the account.
func guidePrivileges() []string {
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "vsphere.md"))
	Expect(err).NotTo(HaveOccurred())
	seen := map[string]bool{}
	var list []string
	for _, found := range regexp.MustCompile("(?m)`([A-Z][A-Za-z]+(\\.[A-Z][A-Za-z]+)+)`").FindAllStringSubmatch(string(text), -1) {
		if !seen[found[1]] {
			seen[found[1]] = true
			list = append(list, found[1])
		}
	}
	return list
}
