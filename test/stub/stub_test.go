package stub

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/infrastructure"
	"github.com/nova-platform/cluster-api-provider-nova/hack/providers/files"
	"github.com/nova-platform/cluster-api-provider-nova/internal/manager"
	"github.com/nova-platform/cluster-api-provider-nova/providers/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// workTree writes a copy of the parts of the work tree that the list of
// providers changes, with the stub in the list, and the definitions of its kinds.
func workTree(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	root := t.TempDir()
	for _, part := range []string{"bootstrap", "config", "docs/reference", "modules/catalogue", "templates"} {
		g.Expect(os.CopyFS(filepath.Join(root, part), os.DirFS(filepath.Join(tools.Root(), part)))).To(Succeed())
	}
	metadata, err := os.ReadFile(filepath.Join(tools.Root(), "metadata.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(root, "metadata.yaml"), metadata, 0o600)).To(Succeed())

	stale := filepath.Join(root, "templates/nova-zvirt/flavors/removed/kustomization.yaml")
	g.Expect(os.MkdirAll(filepath.Dir(stale), 0o750)).To(Succeed())
	g.Expect(os.WriteFile(stale, []byte("# Generated from hack/providers/files/templates/flavors/removed/kustomization.yaml.tmpl by hack/generate.sh.\n"), 0o600)).To(Succeed())
	g.Expect(files.Write(root, append(registry.All(), &New(nil).Info))).To(Succeed())
	g.Expect(filepath.Dir(stale)).NotTo(BeADirectory(), "a file whose template was removed")

	// The stub's kinds have the fields of vSphere's.
	from, to := filepath.Join(root, "config/nova-vsphere/crd/bases"), filepath.Join(root, "config/nova-stub/crd/bases")
	g.Expect(os.MkdirAll(to, 0o750)).To(Succeed())
	g.Expect(filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rename := strings.NewReplacer("novavsphere", "novastub", "NovaVSphere", "NovaStub", "- novavs", "- novast")
		return os.WriteFile(filepath.Join(to, rename.Replace(filepath.Base(path))), []byte(rename.Replace(string(text))), 0o600)
	})).To(Succeed())
	return root
}

func TestStubIsAProvider(t *testing.T) {
	root := workTree(t)
	t.Run("Components", func(t *testing.T) { showsComponents(t, root) })
	t.Run("Files", func(t *testing.T) { showsFiles(t, root) })
	t.Run("Machine", func(t *testing.T) { runsMachine(t, root) })
}

func showsComponents(t *testing.T, root string) {
	t.Helper()
	g := NewWithT(t)
	paths, err := tools.Paths(t.Context(), os.Stderr, "kubectl")
	g.Expect(err).NotTo(HaveOccurred())
	for _, kind := range []string{"default", "namespaced"} {
		out, err := exec.CommandContext(t.Context(), paths["kubectl"], "kustomize", filepath.Join(root, "config/nova-stub", kind)).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		g.Expect(string(out)).To(And(
			ContainSubstring("cluster.x-k8s.io/provider: infrastructure-nova-stub"),
			ContainSubstring("image: ghcr.io/nova-platform/nova-stub:"),
			ContainSubstring("- novastubmachines/status"),
			ContainSubstring("namespace: nova-stub-system"),
		), kind)
		g.Expect(string(out)).NotTo(ContainSubstring("vsphere"), kind)
	}
}

func showsFiles(t *testing.T, root string) {
	t.Helper()
	g := NewWithT(t)
	for name, lines := range map[string][]string{
		"templates/nova-stub/clusterclass-nova-stub.yaml": {"kind: NovaStubMachineTemplate", "name: stub-credentials"},
		"docs/reference/providers.md":                     {"| `nova-stub` | Stub |", "| 7 per stub server |"},
		"config/monitoring/podmonitor.yaml":               {"- nova-stub-system"},
		"config/monitoring/scrape.yaml":                   {"- nova-stub-system"},
		"config/monitoring/kube-state-metrics.yaml":       {"- novastubclusters", "- novastubmachines"},
		"config/monitoring/custom-resource-state.yaml":    {"kind: NovaStubCluster\n", "kind: NovaStubMachine\n"},
		"templates/flavors/autoscaled/autoscaler.yaml":    {"- novastubmachinetemplates"},
		"modules/catalogue/access/namespace.yaml":         {"- novastubmachinetemplates"},
	} {
		text, err := os.ReadFile(filepath.Join(root, name))
		g.Expect(err).NotTo(HaveOccurred())
		for _, line := range lines {
			g.Expect(string(text)).To(ContainSubstring(line), name)
		}
	}
	written, err := files.Of(root, &New(nil).Info)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(written).To(HaveKey("templates/nova-stub/flavors/ha/kustomization.yaml"))
}

// runsMachine runs the controllers of the stub: a machine gets a VM, and loses
// it.
func runsMachine(t *testing.T, root string) {
	t.Helper()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	e, err := env.Start(context.Background(), filepath.Join(root, "config/nova-stub/crd/bases"))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })
	g.Expect(AddToScheme(e.Scheme)).To(Succeed())
	rig, err := infratest.New(t.Context(), e)
	g.Expect(err).NotTo(HaveOccurred())

	mgr, err := ctrl.NewManager(e.Config, ctrl.Options{Scheme: e.Scheme, Metrics: server.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(HaveOccurred())
	p := New(rig.Hypervisor)
	g.Expect(infrastructure.Setup(t.Context(), mgr, &manager.Options{Concurrency: 1}, p, p.MaxCreations)).To(Succeed())
	go func() { _ = mgr.Start(t.Context()) }()

	infra, machine := createStub(t, rig)
	condition := func(o interface {
		client.Object
		conditions.Getter
	}, name string) func() (string, error) {
		return func() (string, error) {
			err := rig.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			return conditions.GetReason(o, name), err
		}
	}
	g.Eventually(condition(infra, infrav1.HypervisorAvailableCondition)).Should(Equal(infrav1.HypervisorAvailableReason))
	g.Eventually(condition(machine, infrav1.VirtualMachineProvisionedCondition)).Should(Equal(infrav1.ProvisionedReason))
	g.Expect(rig.Hypervisor.Created(rig.Key())).To(Equal(1))

	g.Expect(rig.Client.Delete(t.Context(), machine)).To(Succeed())
	g.Eventually(func() bool {
		return apierrors.IsNotFound(rig.Client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
	}).Should(BeTrue())
	g.Expect(rig.Hypervisor.Exists(rig.Key())).To(BeFalse())
}

// createStub creates a provisioned cluster with one machine.
func createStub(t *testing.T, rig *infratest.Rig) (*NovaStubCluster, *NovaStubMachine) {
	t.Helper()
	g := NewWithT(t)
	create := func(objects ...client.Object) {
		t.Helper()
		for _, o := range objects {
			g.Expect(rig.Client.Create(t.Context(), o)).To(Succeed())
		}
	}
	cluster, machine := rig.Cluster(), rig.Machine()
	cluster.Spec.InfrastructureRef.Kind, machine.Spec.InfrastructureRef.Kind = "NovaStubCluster", "NovaStubMachine"
	create(cluster, rig.Secret(infratest.CredentialsName, map[string]string{"username": "nova", "password": "secret"}))
	infra := &NovaStubCluster{*rig.InfraCluster()}
	infra.OwnerReferences = []metav1.OwnerReference{infratest.Owner(cluster, "Cluster")}
	create(infra)
	g.Expect(rig.ProvisionInfrastructure(t.Context())).To(Succeed())
	create(machine, rig.Secret(infratest.BootstrapName, map[string]string{"value": "#cloud-config", "format": "cloud-config"}))
	vm := &NovaStubMachine{*rig.InfraMachine()}
	vm.OwnerReferences = []metav1.OwnerReference{infratest.Owner(machine, "Machine")}
	create(vm)
	return infra, vm
}
