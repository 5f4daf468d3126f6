package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/release"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// managementCluster is a workload cluster of one machine on a host, which
// becomes a management cluster.
type managementCluster struct {
	bed.Cluster

	// registry is the only registry that its nodes know.
	registry   *registry.Server
	dir        string
	client     client.WithWatch
	kubeconfig string
	issue      func(context.Context) error
}

// create creates the cluster, whose nodes pull every image from a registry that
// needs a login: those with the address of the registry in their names, and those of
// other registries.
func (m *managementCluster) create(ctx context.Context, from *registry.Server) {
	GinkgoHelper()
	m.registry, m.dir = from, GinkgoT().TempDir()
	objects, err := b.Generate(ctx, m.Cluster)
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetKind() != "NovaControlPlane" {
			continue
		}
		platform, _, err := unstructured.NestedMap(object.Object, "spec", "platform")
		Expect(err).NotTo(HaveOccurred())
		var mirrors []any
		for _, name := range []string{from.Address, "*"} {
			mirrors = append(mirrors, map[string]any{"registry": name, "endpoints": []any{"https://" + from.Address}})
		}
		platform["registryMirrors"] = mirrors
		platform["mirrorCredentialsSecretRef"] = map[string]any{"name": "universe"}
		platform["mirrorTrustedCAFrom"] = map[string]any{"secret": map[string]any{"name": "universe", "key": "ca.crt"}}
		Expect(unstructured.SetNestedMap(object.Object, platform, "spec", "platform")).To(Succeed())
	}
	Expect(b.Credentials(ctx, m.Cluster)).To(Succeed())
	Expect(b.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "universe"},
		StringData: map[string]string{"username": from.User, "password": from.Password, "ca.crt": string(from.CA)},
	})).To(Succeed())
	Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
}

// await waits until the cluster can be a management cluster.
func (m *managementCluster) await(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(b.ReadyNodes(ctx, m.Cluster)).To(HaveLen(m.ControlPlanes))
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
	// The address of the machine itself: the suite keeps the computer so busy that
	// kube-vip loses its lease at times.
	server := m.address(ctx)
	config, err := b.TenantConfig(ctx, m.Key())
	Expect(err).NotTo(HaveOccurred())
	config.Host = server
	m.client, err = client.NewWithWatch(config, client.Options{Scheme: env.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	data, err := b.TenantKubeconfig(ctx, m.Key())
	Expect(err).NotTo(HaveOccurred())
	m.kubeconfig = filepath.Join(m.dir, "kubeconfig")
	data = bytes.ReplaceAll(data, []byte("https://"+m.Endpoint+":6443"), []byte(server))
	Expect(os.WriteFile(m.kubeconfig, data, 0o600)).To(Succeed())
	m.issue, err = bed.IssueCertificates(m.client)
	Expect(err).NotTo(HaveOccurred())
}

// address is the URL of the API server on the machine.
func (m *managementCluster) address(ctx context.Context) string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(b.Client.List(ctx, list, client.InNamespace(m.Namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	for _, address := range list.Items[0].Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP && address.Address != m.Endpoint {
			return "https://" + address.Address + ":6443"
		}
	}
	Fail("the Machine has no address")
	return ""
}

// awaitManagers waits until the core manager and all managers of one version of this
// project run from images of these repositories. Their names are on no host before.
func (m *managementCluster) awaitManagers(ctx context.Context, core, own, version string) {
	GinkgoHelper()
	expected := []any{HavePrefix(core + "/cluster-api-controller:")}
	for _, name := range append(bed.Providers(bed.VSphere), bed.AddonProvider) {
		expected = append(expected, MatchRegexp(`^%s/%s:%s@sha256:[0-9a-f]{64}$`, regexp.QuoteMeta(own), name, regexp.QuoteMeta(version)))
	}
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(m.issue(ctx)).To(Succeed())
		list := &appsv1.DeploymentList{}
		g.Expect(m.client.List(ctx, list, client.HasLabels{clusterv1.ProviderNameLabel})).To(Succeed())
		var found []string
		for i := range list.Items {
			status := list.Items[i].Status
			if status.AvailableReplicas == 1 && status.UpdatedReplicas == 1 && status.Replicas == 1 {
				found = append(found, list.Items[i].Spec.Template.Spec.Containers[0].Image)
			}
		}
		g.Expect(found).To(ConsistOf(expected...))
		pods := &corev1.PodList{}
		g.Expect(m.client.List(ctx, pods, client.HasLabels{clusterv1.ProviderNameLabel})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(len(found)))
		for i := range pods.Items {
			g.Expect(pods.Items[i].Status.ContainerStatuses).To(ConsistOf(And(
				HaveField("Ready", true), HaveField("ImageID", ContainSubstring("@sha256:")))), pods.Items[i].Name)
		}
	}).WithContext(ctx).WithTimeout(installTimeout).WithPolling(2 * time.Second).Should(Succeed())
}

// clusterctl runs clusterctl with a configuration, after the words of a command.
func (m *managementCluster) clusterctl(ctx context.Context, c command, config string, args ...string) string {
	GinkgoHelper()
	c.args = append(append(c.args, programs["clusterctl"]), append(args, "--config", config, "--kubeconfig", m.kubeconfig)...)
	c.env = append(c.env, "XDG_CONFIG_HOME="+filepath.Dir(config))
	return run(ctx, c)
}

// coreProvider is Cluster API's core provider, as its release has it.
type coreProvider struct {
	version              string
	components, metadata []byte
}

// readCore renders the core provider of the module.
func readCore(ctx context.Context) coreProvider {
	GinkgoHelper()
	module, err := tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api")
	Expect(err).NotTo(HaveOccurred())
	version := filepath.Base(module)[len("cluster-api@"):]
	rendered := run(ctx, command{args: []string{programs["kubectl"], "kustomize", filepath.Join(module, "core", "config", "default")}})
	rendered = regexp.MustCompile(`image: \S+/cluster-api-controller:\S+`).ReplaceAllString(rendered, "image: registry.k8s.io/cluster-api/cluster-api-controller:"+version)
	metadata, err := os.ReadFile(filepath.Join(module, "metadata.yaml"))
	Expect(err).NotTo(HaveOccurred())
	return coreProvider{version: version, components: []byte(rendered), metadata: metadata}
}

// write writes the files of the core provider to a repository.
func (c coreProvider) write(repository string) {
	GinkgoHelper()
	folder := filepath.Join(repository, "cluster-api", c.version)
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, "core-components.yaml"), c.components, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, "metadata.yaml"), c.metadata, 0o600)).To(Succeed())
}

// pushImage pushes the image of another project's program to the registry, below the
// path that it has in its own: registry.k8s.io/PATH/NAME:VERSION.
func pushImage(ctx context.Context, program, path, name, version string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	bin := filepath.Join(dir, "bin", runtime.GOARCH)
	Expect(os.MkdirAll(bin, 0o755)).To(Succeed())
	Expect(os.MkdirAll(filepath.Join(dir, "sbom"), 0o755)).To(Succeed())
	Expect(os.Symlink(programs[program], filepath.Join(bin, name))).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "sbom", name+"-"+runtime.GOARCH+".cdx.json"), []byte("{}"), 0o600)).To(Succeed())
	run(ctx, command{args: []string{
		programs["nova-release"], "images", "-dir", dir, "-version", version, "-registry", "registry.k8s.io/" + path, "-revision", version,
	}})
	run(ctx, command{inside: true, env: []string{"DOCKER_CONFIG=" + login}, args: []string{
		programs["nova-release"], "push", "-layout", filepath.Join(dir, "images"), "-ca", public.CAFile(), public.Address + "/" + path,
	}})
}

// describeInstalled installs from the registry and the URL.
func describeInstalled() {
	// clusterctl runs clusterctl with the configuration of a release, and the core provider.
	clusterctl := func(ctx context.Context, version string, args ...string) string {
		GinkgoHelper()
		configuration := published[version].clusterctl + fmt.Sprintf("- name: cluster-api\n  type: CoreProvider\n  url: %s/cluster-api/%s/core-components.yaml\n", packages, core.version)
		config := filepath.Join(GinkgoT().TempDir(), "clusterctl.yaml")
		Expect(os.WriteFile(config, []byte(configuration), 0o600)).To(Succeed())
		c := web.reach()
		c.env = append(c.env, "SSL_CERT_FILE="+web.ca)
		return online.clusterctl(ctx, c, config, args...)
	}

	It("is installed from the registry and the URL", func(ctx context.Context) {
		repository := GinkgoT().TempDir()
		core.write(repository)
		upload := web.reach(programs["nova-release"], "upload", "-dir", repository, "-version", core.version, "-ca", web.ca, packages)
		upload.env = append(upload.env, "GITLAB_TOKEN="+scope)
		run(ctx, upload)
		online.await(ctx)
		// To clusterctl cert-manager is there, as where another team runs it.
		Expect(release.CertManager(ctx, online.client)).To(Succeed())
		clusterctl(ctx, first, "init", "--core", "cluster-api:"+core.version, "--infrastructure", "nova-vsphere:"+first,
			"--bootstrap", "nova:"+first, "--control-plane", "nova:"+first, "--addon", "nova:"+first)
		online.awaitManagers(ctx, "registry.k8s.io/cluster-api", images, first)
		generated := clusterctl(ctx, first, "generate", "cluster", "demo", "--infrastructure", "nova-vsphere:"+first, "--list-variables")
		Expect(generated).To(ContainSubstring("CONTROL_PLANE_ENDPOINT_HOST"))
		passed("init")
	})

	It("is upgraded to the next version", func(ctx context.Context) {
		clusterctl(ctx, next, "upgrade", "apply", "--infrastructure", "nova-vsphere:"+next, "--bootstrap", "nova:"+next,
			"--control-plane", "nova:"+next, "--addon", "nova:"+next)
		online.awaitManagers(ctx, "registry.k8s.io/cluster-api", images, next)
		passed("upgrade")
	})
}
