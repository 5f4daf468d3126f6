package bed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// generated runs the real clusterctl over the product's template.
func generated(t *testing.T, c Cluster) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	programs, err := tools.Paths(t.Context(), os.Stderr, "kubectl", "clusterctl")
	g.Expect(err).NotTo(HaveOccurred())
	facts, err := FactsOf(c.Hypervisor)
	g.Expect(err).NotTo(HaveOccurred())
	components, err := render(t.Context(), programs["kubectl"], filepath.Join(tools.Root(), "config", facts.Provider, "default"))
	g.Expect(err).NotTo(HaveOccurred())
	repository := t.TempDir()
	g.Expect(writeRepository(repository, map[string][]byte{facts.Provider: components})).To(Succeed())
	thumbprint := strings.Repeat("AB:", 31) + "AB"
	variables := map[string]map[string]string{
		VSphere: vcenterVariables(VCenter{Server: "vcenter.example.org", Thumbprint: thumbprint}),
		ZVirt:   engineVariables("10.77.0.1:8443", thumbprint, "-----BEGIN CERTIFICATE-----\n"),
		Proxmox: proxmoxVariables("10.77.0.1:8006", "-----BEGIN CERTIFICATE-----\n"),
	}
	objects, err := generate(t.Context(), programs["clusterctl"], repository, facts.Provider, variables[c.Hypervisor], c)
	g.Expect(err).NotTo(HaveOccurred())
	return objects
}

// TestAPIServerTakesGeneratedCluster fails when the template or the overlay
// names a field or a value that the definitions do not have.
func TestAPIServerTakesGeneratedCluster(t *testing.T) {
	g := NewWithT(t)
	e, err := env.Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(e.Stop()).To(Succeed()) })

	strict := client.WithFieldValidation(e.Client, "Strict")
	for _, hypervisor := range Hypervisors() {
		t.Run(hypervisor, func(t *testing.T) {
			g := NewWithT(t)
			c := Cluster{Name: "demo", Namespace: hypervisor, Hypervisor: hypervisor, ControlPlanes: 3, Workers: 2, Endpoint: "10.77.0.10"}
			ns := &corev1.Namespace{}
			ns.Name = c.Namespace
			g.Expect(e.Client.Create(t.Context(), ns)).To(Succeed())
			facts, err := FactsOf(hypervisor)
			g.Expect(err).NotTo(HaveOccurred())
			kinds := map[string]int{}
			for _, object := range generated(t, c) {
				kinds[strings.TrimPrefix(object.GetKind(), facts.Kinds)]++
				g.Expect(strict.Create(t.Context(), object)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
				if object.GetKind() == facts.Kinds+"Cluster" {
					secret, _, err := unstructured.NestedString(object.Object, "spec", "identityRef", "name")
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(secret).To(Equal(facts.CredentialsSecret))
				}
			}
			// A Cluster is Cluster API's, and the hypervisor's has lost its prefix.
			g.Expect(kinds).To(Equal(map[string]int{
				"Cluster": 2, "NovaControlPlane": 1, "MachineDeployment": 1, "MachineTemplate": 2, "NovaConfigTemplate": 1,
			}))
		})
	}
}

// TestOverlayKeepsTheTemplate fails if the overlay replaces fields instead of
// adding to them.
func TestOverlayKeepsTheTemplate(t *testing.T) {
	g := NewWithT(t)
	for _, object := range generated(t, Cluster{Name: "demo", Namespace: "tenants", Hypervisor: VSphere, ControlPlanes: 1, Workers: 2, Endpoint: "10.77.0.10"}) {
		read := func(fields ...string) any {
			value, _, err := unstructured.NestedFieldNoCopy(object.Object, fields...)
			g.Expect(err).NotTo(HaveOccurred())
			return value
		}
		switch object.GetKind() {
		case "NovaControlPlane":
			g.Expect(read("spec", "version")).To(Equal(KubernetesVersion))
			g.Expect(read("spec", "config", "kubeadm", "imagePullPolicy")).To(Equal("Never"))
			g.Expect(read("spec", "config", "kubeadm", "configPatches")).To(HaveLen(2))
			g.Expect(read("spec", "platform", "kubeProxy", "mode")).To(Equal("nftables"))
		case "NovaConfigTemplate":
			g.Expect(read("spec", "template", "spec", "roles")).To(ConsistOf("worker"))
			g.Expect(read("spec", "template", "spec", "kubeadm", "configPatches")).To(BeNil())
			g.Expect(read("spec", "template", "spec", "files")).To(HaveLen(2))
		}
	}
}
