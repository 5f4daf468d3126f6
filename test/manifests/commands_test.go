package manifests

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// fence is a block of commands in a document; it may stand in a list.
var fence = regexp.MustCompile("(?m)^( *)```sh\n((?s:.*?)\n) *```$")

// meanwhile stands in for what people and managers do between two commands, and
// ends what a person would interrupt.
var meanwhile = strings.NewReplacer(
	// A person edits the file.
	"# In next.yaml: another name and template, and no uid, resourceVersion, ownerReferences and status.",
	"sed -i -e 's/^  name: demo-control-plane$/&-next/' -e '/^  uid:/d' -e '/^  resourceVersion:/d' next.yaml",
	// Nobody watches.
	" -w\n", "\n",
	// The control plane provider writes a new one.
	"delete secret demo-kubeconfig\n", "delete secret demo-kubeconfig --dry-run=server\n",
)

// The commands are run as they are written, on a real API server with all
// definitions, rules and policies. What managers make of it is for suites with
// hosts.
var _ = Describe("the commands of day2.md", Ordered, func() {
	var dir string
	var env []string

	BeforeAll(func(ctx SpecContext) {
		dir = GinkgoT().TempDir()
		env = prepareCommands(ctx, dir)
		makeDemo(ctx, dir, env)
	})

	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", "day2.md"))
	if err != nil {
		panic(err)
	}
	blocks := fence.FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		script := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")
		name, _, _ := strings.Cut(strings.TrimSpace(script), "\n")
		It("are taken: "+name, func(ctx SpecContext) {
			Expect(shell(ctx, dir, env, meanwhile.Replace(script))).To(Succeed())
		})
	}

	It("are found", func() { Expect(len(blocks)).To(BeNumerically(">", 15)) })
})

// The part of the quick starts that makes a cluster. A server with any
// certificate is hypervisor enough for it.
var _ = DescribeTable("the commands of", func(ctx SpecContext, document, provider, host string) {
	dir := GinkgoT().TempDir()
	env := prepareCommands(ctx, dir)
	repository := filepath.Join(dir, "out")
	out, err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), repository, version).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	hypervisor := httptest.NewTLSServer(http.NotFoundHandler())
	DeferCleanup(hypervisor.Close)
	address := hypervisor.Listener.Addr().String()

	namespace := "first-" + provider
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", document))
	Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(text), "## 5. The cluster")
	Expect(found).To(BeTrue())
	script := fence.FindStringSubmatch(section)[2]
	instead := strings.NewReplacer(
		host, address, ":443 </dev/null", " </dev/null",
		// clusterctl would ask what clusterctl init has noted.
		"--infrastructure "+provider, "--infrastructure "+provider+":"+version,
		"namespace tenants", "namespace "+namespace, "-n tenants", "-n "+namespace)
	Expect(shell(ctx, dir, env, instead.Replace(script))).To(Succeed())
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	Expect(server.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "demo"}, made)).To(Succeed())
	manifest, err := os.ReadFile(filepath.Join(dir, "demo.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(manifest)).To(MatchRegexp(`(?m)thumbprint: "?([0-9A-F]{2}:){31}[0-9A-F]{2}"?$`), "openssl says it as it is wanted")
},
	Entry("quickstart-vsphere.md", "quickstart-vsphere.md", "nova-vsphere", "vcenter.example.com"),
	Entry("quickstart-zvirt.md", "quickstart-zvirt.md", "nova-zvirt", "engine.example.com"),
)

// prepareCommands returns an environment in which kubectl and clusterctl are on
// the path and reach the API server.
func prepareCommands(ctx context.Context, dir string) []string {
	GinkgoHelper()
	paths, err := tools.Paths(ctx, GinkgoWriter, "kubectl", "clusterctl")
	Expect(err).NotTo(HaveOccurred())
	bin := filepath.Join(dir, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	for name, path := range paths {
		Expect(os.Symlink(path, filepath.Join(bin, name))).To(Succeed())
	}
	config := filepath.Join(dir, "kubeconfig")
	Expect(os.WriteFile(config, server.Kubeconfig(), 0o600)).To(Succeed())
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+config, "XDG_CONFIG_HOME="+dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
}

// makeDemo makes the cluster that the documents speak of.
func makeDemo(ctx context.Context, dir string, env []string) {
	GinkgoHelper()
	Expect(server.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenants"}})).To(Succeed())
	for name, value := range asked {
		env = append(env, name+"="+value)
	}
	env = append(env, "NAMESPACE=tenants", "KUBERNETES_VERSION=v1.35.4")
	template := filepath.Join(tools.Root(), "templates", "nova-vsphere", "cluster-template.yaml")
	Expect(shell(ctx, dir, env, "clusterctl generate yaml --from "+template+" | kubectl apply -f -")).To(Succeed())
	Expect(server.Client.Create(ctx, &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenants", Name: "demo-worker-abcde-fghij", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       "demo",
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("data")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "NovaVSphereMachine", Name: "demo-worker-abcde-fghij"},
		},
	})).To(Succeed())
	for name, data := range map[string][]byte{"demo-kubeconfig": server.Kubeconfig(), "vsphere-credentials": nil} {
		Expect(server.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: name}, Data: map[string][]byte{secret.KubeconfigDataName: data},
		})).To(Succeed())
	}
}

// shell runs a script in a folder, and fails with what it said.
func shell(ctx context.Context, dir string, env []string, script string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	GinkgoWriter.Printf("%s\n%s\n", script, out)
	return err
}
