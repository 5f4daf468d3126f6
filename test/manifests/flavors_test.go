package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/providers/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// flavors are the flavors of each hypervisor's release in addition to the default template.
var flavors = []string{"", "-ha", "-external-loadbalancer", "-air-gapped", "-autoscaled", "-etcd-snapshots", "-ignition", "-topology"}

// flavorValues are values for all variables that have no default.
var flavorValues = map[string]string{
	"CLUSTER_NAME": "demo", "NAMESPACE": "flavors", "KUBERNETES_VERSION": "v1.36.3",
	"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2", "CONTROL_PLANE_ENDPOINT_HOST": "192.0.2.10",
	"VSPHERE_SERVER": "vcenter.example", "VSPHERE_TLS_THUMBPRINT": thumbprint, "VSPHERE_DATACENTER": "dc",
	"VSPHERE_RESOURCE_POOL": "pool", "VSPHERE_FOLDER": "folder", "VSPHERE_DATASTORE": "store",
	"VSPHERE_NETWORK": "network", "VSPHERE_TEMPLATE": "template",
	"ZVIRT_SERVER": "engine.example", "ZVIRT_CA_BUNDLE": `-----BEGIN CERTIFICATE-----\nAAAA\n`, "ZVIRT_CLUSTER": "cluster",
	"ZVIRT_STORAGE_DOMAIN": "store", "ZVIRT_VNIC_PROFILE": "network/profile", "ZVIRT_TEMPLATE": "template",
	"PROXMOX_SERVER": "pve.example", "PROXMOX_CA_BUNDLE": `-----BEGIN CERTIFICATE-----\nAAAA\n`, "PROXMOX_NETWORK": "vmbr0", "PROXMOX_TEMPLATE": "template",
	"UNIVERSE_IMAGE_REPOSITORY": "hub.universe.example/nova-universe",
	"UNIVERSE_REGISTRY_MIRROR":  "https://hub.universe.example/all", "NTP_SERVER": "ntp.example",
	"ETCD_BUCKET_ENDPOINT": "https://s3.example", "ETCD_BUCKET": "etcd",
}

var thumbprint = strings.TrimSuffix(strings.Repeat("AB:", 32), ":")

var _ = Describe("a release", Ordered, func() {
	var repository string

	BeforeAll(func(ctx SpecContext) {
		repository = GinkgoT().TempDir()
		out, err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), repository, version).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(server.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flavorValues["NAMESPACE"]}})).To(Succeed())
	})

	It("has no version that its metadata does not know", func(ctx SpecContext) {
		err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), GinkgoT().TempDir(), "v99.0.0").Run()
		Expect(err).To(HaveOccurred())
	})

	It("has a management repository that the API server takes", func(ctx SpecContext) {
		paths, err := tools.Paths(ctx, GinkgoWriter, "kubectl")
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		out, err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "gitops.sh"), dir, "v0.1.7").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		for _, folder := range []string{"classes", "credentials", "modules", "tenants/test/acme", "tenants/production/globex"} {
			out, err := exec.CommandContext(ctx, paths["kubectl"], "kustomize", filepath.Join(dir, folder)).Output()
			Expect(err).NotTo(HaveOccurred(), folder)
			if folder != "credentials" && folder != "modules" {
				Expect(string(out)).To(ContainSubstring("-v0.1.7"), "classes have the names of their release")
			}
			expectTaken(ctx, out)
		}

		By("using the common settings of each hypervisor")
		hypervisors, err := os.ReadDir(filepath.Join(dir, "hypervisors"))
		Expect(err).NotTo(HaveOccurred())
		Expect(hypervisors).To(HaveLen(len(registry.All())))
		tenant := filepath.Join(dir, "tenants/production/globex")
		kustomization, err := os.ReadFile(filepath.Join(tenant, "kustomization.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(kustomization)).To(ContainSubstring("hypervisors/engine-one"))
		for _, hypervisor := range hypervisors {
			text := strings.ReplaceAll(string(kustomization), "engine-one", hypervisor.Name())
			Expect(os.WriteFile(filepath.Join(tenant, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
			out, err := exec.CommandContext(ctx, paths["kubectl"], "kustomize", tenant).Output()
			Expect(err).NotTo(HaveOccurred(), hypervisor.Name())
			Expect(string(out)).To(ContainSubstring("name: "+hypervisor.Name()), "the identity")
			expectTaken(ctx, out)
		}
	})

	for _, p := range registry.All() {
		hypervisor := p.Manager()
		for _, flavor := range flavors {
			It("has the template"+flavor+" of "+hypervisor+" that the API server takes", func(ctx SpecContext) {
				paths, err := tools.Paths(ctx, GinkgoWriter, "clusterctl")
				Expect(err).NotTo(HaveOccurred())
				file := filepath.Join(repository, "infrastructure-"+hypervisor, version, "cluster-template"+flavor+".yaml")
				cmd := exec.CommandContext(ctx, paths["clusterctl"], "generate", "yaml", "--from", file)
				cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+repository)
				for name, value := range flavorValues {
					cmd.Env = append(cmd.Env, name+"="+value)
				}
				cmd.Stderr = GinkgoWriter
				out, err := cmd.Output()
				Expect(err).NotTo(HaveOccurred())
				expectTaken(ctx, out)
			})
		}
		It("has a class of "+hypervisor+" that the API server takes", func(ctx SpecContext) {
			out, err := os.ReadFile(filepath.Join(repository, "infrastructure-"+hypervisor, version, "clusterclass-"+hypervisor+".yaml"))
			Expect(err).NotTo(HaveOccurred())
			expectTaken(ctx, out)
		})
	}
})

// expectTaken lets the API server judge a manifest, by definitions and their
// rules, with no field unknown.
func expectTaken(ctx SpecContext, manifest []byte) {
	GinkgoHelper()
	objects, err := Objects(manifest)
	Expect(err).NotTo(HaveOccurred())
	Expect(objects).NotTo(BeEmpty())
	for _, object := range objects {
		if object.GetKind() != "Namespace" && !strings.HasSuffix(object.GetKind(), "Identity") {
			object.SetNamespace(flavorValues["NAMESPACE"])
		}
		Expect(server.Client.Create(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).
			To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
}
