package release

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// sourceTimeout is how long Flux may take to read an artifact.
const sourceTimeout = 2 * time.Minute

// certManager writes the definitions of cert-manager to a file.
func certManager(ctx context.Context) string {
	GinkgoHelper()
	module, err := tools.ToolDir(ctx, "cert-manager", "github.com/cert-manager/cert-manager")
	Expect(err).NotTo(HaveOccurred())
	files, err := filepath.Glob(filepath.Join(module, "deploy", "crds", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	var all bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		all.WriteString("---\n")
		all.Write(data)
	}
	to := filepath.Join(GinkgoT().TempDir(), "cert-manager.yaml")
	Expect(os.WriteFile(to, all.Bytes(), 0o600)).To(Succeed())
	return to
}

// pullCharts writes charts to a folder, as "helm pull" does, and returns their names.
func pullCharts(ctx context.Context, dir string) map[string]string {
	GinkgoHelper()
	selected, err := addons.Select("local-path", "metrics-server")
	Expect(err).NotTo(HaveOccurred())
	names := map[string]string{}
	for _, a := range selected {
		files, err := a.Chart.Files(ctx)
		Expect(err).NotTo(HaveOccurred())
		packed, err := bed.PackChart(a.Chart.Name, a.Chart.Version, files)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, a.Chart.Name+"-"+a.Chart.Version+".tgz"), packed, 0o600)).To(Succeed())
		names[a.Chart.Name] = a.Chart.Version
	}
	return names
}

// bundle makes the bundle of the next version from the registry that has the images,
// and unpacks it in a folder.
func bundle(ctx context.Context, dir, charts string) string {
	GinkgoHelper()
	core, err := tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api")
	Expect(err).NotTo(HaveOccurred())
	list, file := filepath.Join(dir, "images"), filepath.Join(dir, "nova.tar.zst")
	image := "registry.k8s.io/cluster-api/cluster-api-controller:" + filepath.Base(core)[len("cluster-api@"):]
	Expect(os.WriteFile(list, []byte(image+"\n"), 0o600)).To(Succeed())
	run(ctx, command{inside: true, args: []string{filepath.Join(tools.Root(), "hack", "bundle.sh"), out, next, file}, env: []string{
		"DOCKER_CONFIG=" + login, "FROM=" + public.Address, "CA=" + public.CAFile(), "IMAGES=" + list, "CHARTS=" + charts,
		"CERT_MANAGER=" + certManager(ctx), "KEY=" + key, "WITHOUT_DOCS=1",
	}})
	run(ctx, command{args: []string{programs["cosign"], "verify-blob", "-key", key + ".pub", "-signature", file + ".sig", file}})
	run(ctx, command{args: []string{"tar", "-C", dir, "--zstd", "-xf", file}})
	Expect(os.Remove(file)).To(Succeed())
	return filepath.Join(dir, "nova-"+next)
}

// describeBundled installs the bundle where one registry is reached and nothing else.
func describeBundled() {
	var dir, unpacked, address string
	var charts map[string]string

	BeforeAll(func() { dir = GinkgoT().TempDir() })

	It("installs from one file, with one registry", func(ctx context.Context) {
		folder := GinkgoT().TempDir()
		charts = pullCharts(ctx, folder)
		unpacked = bundle(ctx, dir, folder)
		// From here on there is no other registry, and no web server.
		public.Stop()
		Expect(web.stop()).To(Succeed())
		for _, gone := range []string{public.Address, gitlabAddress + ":443", "1.1.1.1:443"} {
			Expect(b.Inside(func() error {
				conn, err := net.DialTimeout("tcp", gone, time.Second)
				if err == nil {
					return errors.Join(errors.New("it is reached"), conn.Close())
				}
				return nil
			})).To(Succeed(), gone)
		}
		login, err := closed.registry.Login(closed.registry.Password)
		Expect(err).NotTo(HaveOccurred())
		address = closed.registry.Address + "/universe"
		install := command{inside: true, args: []string{filepath.Join(unpacked, "install.sh"), address, closed.registry.CAFile()}, env: []string{"DOCKER_CONFIG=" + login}}
		run(ctx, install)
		said := run(ctx, install)
		Expect(said).To(ContainSubstring("oci://"+address+"/nova\n"), "it can be repeated")
		core := regexp.MustCompile(`--core (cluster-api:\S+)`).FindStringSubmatch(said)
		Expect(core).To(HaveLen(2), said)

		closed.await(ctx)
		closed.clusterctl(ctx, command{inside: true}, filepath.Join(unpacked, "clusterctl.yaml"), "init", "--core", core[1],
			"--infrastructure", "nova-vsphere", "--bootstrap", "nova", "--control-plane", "nova", "--addon", "nova")
		closed.awaitManagers(ctx, address+"/cluster-api", address+"/nova", next)
	})

	It("runs the fleet page with the image of the registry", func(ctx context.Context) {
		run(ctx, command{inside: true, args: []string{programs["kubectl"], "--kubeconfig", closed.kubeconfig, "apply", "-f", filepath.Join(unpacked, "fleet.yaml")}})
		Eventually(func(g Gomega, ctx context.Context) {
			pods := &corev1.PodList{}
			g.Expect(closed.client.List(ctx, pods, client.InNamespace("nova-fleet-system"))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(1))
			g.Expect(pods.Items[0].Spec.Containers[0].Image).To(MatchRegexp(`^%s/nova/nova-fleet:%s@sha256:`, regexp.QuoteMeta(address), regexp.QuoteMeta(next)))
			g.Expect(pods.Items[0].Status.ContainerStatuses).To(ConsistOf(HaveField("Ready", true)))
		}).WithContext(ctx).WithTimeout(installTimeout).Should(Succeed())
	})

	It("has charts and the catalogue that Flux reads", func(ctx context.Context) {
		scheme := env.Scheme()
		Expect(sourcev1.AddToScheme(scheme)).To(Succeed())
		flux, err := client.New(b.Config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		sources := fluxSources(ctx, address, charts)
		for _, source := range sources {
			Expect(flux.Create(ctx, source)).To(Succeed())
		}
		Eventually(func(g Gomega, ctx context.Context) {
			for _, source := range sources {
				g.Expect(flux.Get(ctx, client.ObjectKeyFromObject(source), source)).To(Succeed())
				g.Expect(meta.IsStatusConditionTrue(source.Status.Conditions, fluxmeta.ReadyCondition)).To(BeTrue(), "%s: %v", source.Name, source.Status.Conditions)
				g.Expect(source.Status.Artifact.Digest).To(HavePrefix("sha256:"))
			}
		}).WithContext(ctx).WithTimeout(sourceTimeout).Should(Succeed())
		passed("closed")
	})
}

// fluxSources are sources for charts and for the catalogue at an address.
func fluxSources(ctx context.Context, address string, charts map[string]string) []*sourcev1.OCIRepository {
	GinkgoHelper()
	login, err := closed.registry.Login(closed.registry.Password)
	Expect(err).NotTo(HaveOccurred())
	config, err := os.ReadFile(filepath.Join(login, "config.json"))
	Expect(err).NotTo(HaveOccurred())
	for _, secret := range []*corev1.Secret{
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: closed.Namespace, Name: "login"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
		},
		{ObjectMeta: metav1.ObjectMeta{Namespace: closed.Namespace, Name: "authority"}, Data: map[string][]byte{"ca.crt": closed.registry.CA}},
	} {
		Expect(b.Client.Create(ctx, secret)).To(Succeed())
	}
	source := func(path, tag string) *sourcev1.OCIRepository {
		return &sourcev1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: closed.Namespace, Name: strings.ReplaceAll(path, "/", "-")},
			Spec: sourcev1.OCIRepositorySpec{
				URL: "oci://" + address + "/nova/" + path, Reference: &sourcev1.OCIRepositoryRef{Tag: tag}, Interval: metav1.Duration{Duration: time.Hour},
				SecretRef: &fluxmeta.LocalObjectReference{Name: "login"}, CertSecretRef: &fluxmeta.LocalObjectReference{Name: "authority"},
			},
		}
	}
	all := []*sourcev1.OCIRepository{source("catalogue", next)}
	for name, version := range charts {
		chart := source("charts/"+name, version)
		chart.Spec.LayerSelector = &sourcev1.OCILayerSelector{
			MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Operation: sourcev1.OCILayerCopy,
		}
		all = append(all, chart)
	}
	return all
}
