package manifests

import (
	"archive/tar"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Limits of a quick start: a reader types so many commands, and sets so many
// variables.
const (
	mostCommands  = 15
	mostVariables = 10
)

var (
	heredoc    = regexp.MustCompile(`(?ms)(<<'?END'?.*?)\n(?:.*?\n)?END$`)
	assignment = regexp.MustCompile(`^(?:export )?[A-Z][A-Z_]*=`)
)

// typed returns the commands that a reader of a block types: a pipe is one
// command, and a loop is the commands in it. The setting of a variable is none.
func typed(block string) (commands, variables []string) {
	block = heredoc.ReplaceAllString(block, "$1")
	block = strings.ReplaceAll(block, "\\\n", " ")
	for line := range strings.SplitSeq(block, "\n") {
		line = strings.TrimSpace(line)
		word, _, _ := strings.Cut(line, " ")
		switch {
		case line == "", strings.HasPrefix(line, "#"), slices.Contains([]string{"for", "while", "do", "done"}, word):
		case assignment.MatchString(line):
			variables = append(variables, line)
		default:
			commands = append(commands, line)
		}
	}
	return commands, variables
}

func TestQuickStartsAreShort(t *testing.T) {
	g := NewWithT(t)
	for _, name := range []string{"quickstart-vsphere.md", "quickstart-zvirt.md", "quickstart-proxmox.md"} {
		text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", name))
		g.Expect(err).NotTo(HaveOccurred())
		var commands, variables []string
		for _, b := range blocksIn(string(text)) {
			c, v := typed(b.text)
			commands, variables = append(commands, c...), append(variables, v...)
		}
		g.Expect(len(commands)).To(And(BeNumerically(">", 5), BeNumerically("<=", mostCommands)), "%s: %s", name, strings.Join(commands, "\n"))
		g.Expect(len(variables)).To(And(BeNumerically(">", 5), BeNumerically("<=", mostVariables)), "%s: %s", name, strings.Join(variables, "\n"))
	}
}

// A node that restarts has no other program that starts the kubelet.
func TestNodeImageEnablesItsServices(t *testing.T) {
	g := NewWithT(t)
	recipe := filepath.Join(tools.Root(), "hack", "image")
	for _, unit := range []string{"containerd.service", "kubelet.service"} {
		g.Expect(os.Readlink(filepath.Join(recipe, "files", "etc", "systemd", "system", "multi-user.target.wants", unit))).To(Equal("/etc/systemd/system/" + unit))
		g.Expect(filepath.Join(recipe, "files", "etc", "systemd", "system", unit)).To(BeARegularFile())
	}
	script, err := os.ReadFile(filepath.Join(recipe, "machine.sh"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(script)).To(MatchRegexp(`(?m)^for service in open-vm-tools vmtoolsd qemu-guest-agent `))
	g.Expect(string(script)).NotTo(ContainSubstring("systemctl disable"))
}

// Commands are counted, so a change of the rules for them is seen.
func TestCommandsAreCounted(t *testing.T) {
	g := NewWithT(t)
	commands, variables := typed("export A=$(one)\nB=2\n# comment\nfor x in 1 2; do\n  two \\\n    three | four\ndone <<END\nfive\nEND\nsix - <<'END'\nseven\nEND\neight")
	g.Expect(commands).To(HaveLen(3))
	g.Expect(variables).To(HaveLen(2))
}

// page returns all commands of a quick start as one script, with the reader's
// own values in place of those of the examples.
func page(document, namespace string, values map[string]string) string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", document))
	Expect(err).NotTo(HaveOccurred())
	var script strings.Builder
	for _, b := range blocksIn(string(text)) {
		script.WriteString(b.text + "\n")
	}
	all := spoken.ReplaceAllString(script.String(), namespace)
	for name, value := range values {
		line := regexp.MustCompile(`(?m)^export ` + name + `=.*$`)
		Expect(line.FindAllString(all, -1)).To(HaveLen(1), name)
		all = line.ReplaceAllLiteralString(all, "export "+name+"='"+value+"'")
	}
	// Steps that need the Internet.
	online := regexp.MustCompile(`(?m)^ *-f https://.*\\\n`)
	Expect(online.FindAllString(all, -1)).To(HaveLen(2))
	return online.ReplaceAllString(all, "")
}

// standIn adds a program to the path of a script. "$program" is the real one.
func standIn(dir, name, program, script string) {
	GinkgoHelper()
	path := filepath.Join(dir, "bin", name)
	Expect(os.RemoveAll(path)).To(Succeed())
	Expect(os.WriteFile(path, []byte("#!/bin/bash\nset -euo pipefail\nprogram="+program+"\n"+script+"\n"), 0o700)).To(Succeed())
}

// quickStart is where a quick start is followed.
type quickStart struct {
	dir, namespace string
	env            []string
}

// prepareQuickStart prepares the workstation of a reader: kind, the builds and
// the installation are left out, and the cluster that the managers would make is
// the API server of the tests.
func prepareQuickStart(ctx context.Context, repository, namespace string) quickStart {
	GinkgoHelper()
	q := quickStart{dir: GinkgoT().TempDir(), namespace: namespace}
	q.env = append(prepareCommands(ctx, q.dir, repository), "HOME="+q.dir)
	clusterctl, err := filepath.EvalSymlinks(filepath.Join(q.dir, "bin", "clusterctl"))
	Expect(err).NotTo(HaveOccurred())
	standIn(q.dir, "clusterctl", clusterctl, `[ "$1" = init ] || exec "$program" "$@"
kubectl -n `+namespace+` create secret generic demo-kubeconfig --from-file=value="$KUBECONFIG"`)
	standIn(q.dir, "kind", "", `echo "kind $*"`)
	standIn(q.dir, "make", "", `echo "make $*"`)
	Expect(os.Mkdir(filepath.Join(q.dir, ".ssh"), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(q.dir, ".ssh", "id_ed25519.pub"), []byte("ssh-ed25519 AAAA ops\n"), 0o600)).To(Succeed())
	Expect(os.MkdirAll(filepath.Join(q.dir, "out", "images"), 0o700)).To(Succeed())
	return q
}

// variable returns the value of a variable of a Cluster with a class.
func variable(cluster *clusterv1.Cluster, name string) string {
	GinkgoHelper()
	for _, v := range cluster.Spec.Topology.Variables {
		if v.Name == name {
			return string(v.Value.Raw)
		}
	}
	Fail("no variable " + name)
	return ""
}

// writeOVA writes a node image without a system.
func writeOVA(path string) {
	GinkgoHelper()
	name := strings.TrimSuffix(filepath.Base(path), ".ova")
	disk := []byte(strings.Repeat("disk", 128))
	ovf, err := os.ReadFile(filepath.Join(tools.Root(), "hack", "image", "node.ovf"))
	Expect(err).NotTo(HaveOccurred())
	ovf = []byte(strings.NewReplacer("@NAME@", name, "@GUEST@", "debian10_64Guest", "@SIZE@", strconv.Itoa(len(disk))).Replace(string(ovf)))
	file, err := os.Create(path)
	Expect(err).NotTo(HaveOccurred())
	archive := tar.NewWriter(file)
	for _, part := range []struct {
		name string
		data []byte
	}{{name + ".ovf", ovf}, {name + ".vmdk", disk}} {
		Expect(archive.WriteHeader(&tar.Header{Name: part.name, Mode: 0o600, Size: int64(len(part.data)), Format: tar.FormatUSTAR})).To(Succeed())
		_, err := archive.Write(part.data)
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(archive.Close()).To(Succeed())
	Expect(file.Close()).To(Succeed())
}

// followsVSphere runs the quick start on a simulated vCenter.
func followsVSphere(ctx SpecContext, repository string) {
	GinkgoHelper()
	center, err := vcenter.Start(ctx, vcenter.Options{Delays: map[string]time.Duration{"*": 10 * time.Millisecond}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(center.Stop)
	govc, err := tools.Paths(ctx, GinkgoWriter, "govc")
	Expect(err).NotTo(HaveOccurred())
	q := prepareQuickStart(ctx, repository, "first-vsphere")
	Expect(os.Symlink(govc["govc"], filepath.Join(q.dir, "bin", "govc"))).To(Succeed())
	writeOVA(filepath.Join(q.dir, "out", "debian-13-kube-v1.36.3.ova"))
	login := center.URL()
	login.User = center.Userinfo()
	all := page("quickstart-vsphere.md", q.namespace, map[string]string{
		"VSPHERE_SERVER": center.Address, "GOVC_URL": login.String(),
		"VSPHERE_DATACENTER": "DC0", "VSPHERE_RESOURCE_POOL": "/DC0/host/DC0_C0/Resources/nova",
		"VSPHERE_DATASTORE": "LocalDS_0", "VSPHERE_NETWORK": "node network",
	})
	// The simulated vCenter begins with a folder of that name. Names may contain spaces.
	Expect(shell(ctx, q.dir, append(q.env, "GOVC_URL="+login.String(), "GOVC_INSECURE=true"),
		"govc object.destroy /DC0/vm/nova; govc object.rename /DC0/network/DC0_DVPG0 'node network'")).To(Succeed())
	use, change, found := strings.Cut(all, "kubectl -n "+q.namespace+" patch cluster demo")
	Expect(found).To(BeTrue())
	Expect(shell(ctx, q.dir, q.env, use)).To(Succeed())

	By("making the Cluster")
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: q.namespace, Name: "demo"}
	Expect(server.Client.Get(ctx, key, cluster)).To(Succeed())
	Expect(variable(cluster, "sshAuthorizedKey")).To(Equal(`"ssh-ed25519 AAAA ops"`))
	Expect(variable(cluster, "template")).To(ContainSubstring("debian-13-kube-"))
	Expect(variable(cluster, "tls")).To(ContainSubstring(center.Thumbprint))

	By("creating the user, with a password that meets the policy of a vCenter")
	made := &corev1.Secret{}
	Expect(server.Client.Get(ctx, client.ObjectKey{Namespace: q.namespace, Name: "vsphere-credentials"}, made)).To(Succeed())
	Expect(string(made.Data["password"])).To(MatchRegexp(`^Nova-[0-9a-f]{14}$`))
	login.User = url.UserPassword(string(made.Data["username"]), string(made.Data["password"]))
	Expect(shell(ctx, q.dir, append(q.env, "GOVC_URL="+login.String(), "GOVC_INSECURE=true"), "govc about")).To(Succeed())
	login.User = center.Userinfo()

	By("granting the user exactly the permissions that machines need on each object")
	permits(ctx, login)

	By("changing the Cluster")
	Expect(shell(ctx, q.dir, q.env, "kubectl -n "+q.namespace+" patch cluster demo"+change)).To(Succeed())
}

// needed are the privileges that the life of a machine needs by the objects of
// the quick start, as the guide lists them. absent are those that would let a
// stolen password reach other VMs.
var needed = []struct {
	object         string
	needed, absent []string
}{
	{object: "/", needed: []string{"System.Read"}, absent: []string{"VirtualMachine.Inventory.Delete"}},
	{object: "/DC0/vm", needed: []string{"System.Read"}, absent: []string{"VirtualMachine.Inventory.CreateFromExisting"}},
	{
		object: "/DC0/vm/nova-templates/debian-13-kube-v1.36.3", needed: []string{"System.Read", "VirtualMachine.Provisioning.DeployTemplate"},
		absent: []string{"VirtualMachine.Inventory.Delete", "VirtualMachine.Config.Settings"},
	},
	{object: "/DC0/vm/nova", needed: []string{
		"System.Read", "VirtualMachine.Inventory.CreateFromExisting", "VirtualMachine.Config.CPUCount", "VirtualMachine.Config.Memory",
		"VirtualMachine.Config.Resource", "VirtualMachine.Config.Settings", "VirtualMachine.Config.AdvancedConfig",
		"VirtualMachine.Config.AddRemoveDevice", "VirtualMachine.Config.EditDevice", "VirtualMachine.Config.AddNewDisk",
		"VirtualMachine.Config.DiskExtend", "VirtualMachine.Config.Annotation", "VirtualMachine.Interact.PowerOn",
		"VirtualMachine.Interact.PowerOff", "VirtualMachine.Inventory.Delete", "VirtualMachine.Config.RemoveDisk",
	}, absent: []string{"VirtualMachine.Provisioning.Clone"}},
	{object: "/DC0/host/DC0_C0", needed: []string{"System.Read", "Host.Inventory.EditCluster"}},
	{object: "/DC0/host/DC0_C0/Resources", needed: []string{"System.Read"}, absent: []string{"Resource.AssignVMToPool"}},
	{object: "/DC0/host/DC0_C0/Resources/nova", needed: []string{"System.Read", "Resource.AssignVMToPool"}},
	{object: "/DC0/datastore/LocalDS_0", needed: []string{"System.Read", "Datastore.AllocateSpace"}},
	{object: "/DC0/datastore/LocalDS_1", needed: []string{"System.Read"}, absent: []string{"Datastore.AllocateSpace"}},
	{object: "/DC0/network/node network", needed: []string{"System.Read", "Network.Assign"}},
}

// permits checks the effective permissions of the quick start. vCenter uses
// the permissions of an object itself, and else those that the nearest object
// above it propagates.
func permits(ctx context.Context, login *url.URL) {
	GinkgoHelper()
	vim, err := govmomi.NewClient(ctx, login, true)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = vim.Logout(context.WithoutCancel(ctx)) }()
	manager := object.NewAuthorizationManager(vim.Client)
	roles, err := manager.RoleList(ctx)
	Expect(err).NotTo(HaveOccurred())
	finder := find.NewFinder(vim.Client)
	collector := vim.ServiceContent.PropertyCollector
	for _, n := range needed {
		elements, err := finder.ManagedObjectList(ctx, n.object)
		Expect(err).NotTo(HaveOccurred())
		Expect(elements).To(HaveLen(1), n.object)
		above, err := mo.Ancestors(ctx, vim.Client, collector, elements[0].Object.Reference())
		Expect(err).NotTo(HaveOccurred())
		var has []string
		for i, own := len(above)-1, true; i >= 0 && has == nil; i, own = i-1, false {
			set, err := manager.RetrieveEntityPermissions(ctx, above[i].Self, false)
			Expect(err).NotTo(HaveOccurred())
			for _, p := range set {
				if p.Principal == "nova@vsphere.local" && (own || p.Propagate) {
					has = roles.ById(p.RoleId).Privilege
				}
			}
		}
		Expect(has).To(ContainElements(n.needed), n.object)
		for _, privilege := range n.absent {
			Expect(has).NotTo(ContainElement(privilege), n.object)
		}
	}
}
