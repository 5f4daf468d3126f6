package manifests

import (
	"context"
	"errors"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// fence is a block of commands or a manifest in a document; it may stand in a
// list.
var fence = regexp.MustCompile("(?m)^( *)```(sh|bash|yaml)\n((?s:.*?)\n) *```$")

// block is such a block without its indentation.
type block struct{ language, text string }

// blocksIn returns the blocks of a document.
func blocksIn(text string) []block {
	var blocks []block
	for _, match := range fence.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block{match[2], strings.TrimPrefix(strings.ReplaceAll("\n"+match[3], "\n"+match[1], "\n"), "\n")})
	}
	return blocks
}

// script is a document whose commands are run unchanged and in their order, on a real API server
// with all definitions, rules and policies. Suites with hosts test the reactions of the managers.
type script struct {
	file string
	// demo means that the cluster demo exists.
	demo bool
	// before creates the objects that the document expects.
	before string
}

// machine makes a Machine of the cluster demo.
func machine(name string) string {
	return `kubectl apply -f - <<END
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: ` + name + `}
spec: {clusterName: demo, bootstrap: {dataSecretName: data}, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: NovaVSphereMachine, name: m}}
END
`
}

var scripts = []script{
	{file: "alerts.md", demo: true},
	{file: "autoscaler.md"},
	{file: "clusterctl.md", before: `
kubectl create secret generic registry-login`},
	{file: "controlplane.md", demo: true, before: machine("demo-cp-q2m9d")},
	{file: "day2.md", demo: true},
	{file: "etcd.md", demo: true, before: machine("demo-control-plane-4zq9d") + machine("demo-control-plane-m5w8r") + `
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=etcd -keyout client.key -out client.crt
cp client.crt etcd-ca.crt`},
	{file: "flavors.md"},
	{file: "kubevirt.md"},
	{file: "modules.md", demo: true},
	{file: "proxmox.md", before: "kubectl create secret generic demo-kubeconfig --from-file=value=$KUBECONFIG"},
	{file: "troubleshooting.md", demo: true},
	{file: "vsphere.md", before: "kubectl create secret generic demo-kubeconfig --from-file=value=$KUBECONFIG"},
	{file: "workers.md", demo: true},
	{file: "zvirt.md", before: "kubectl create secret generic demo-kubeconfig --from-file=value=$KUBECONFIG"},
}

// elsewhere are the blocks that are not run here, by document and by how they
// begin, with who runs them. Their programs have to understand them all the
// same.
var elsewhere = map[string]map[string]string{
	"README.md":      {"make quickstart": "people, and the tests of test/cmd/novabed", "make demo": "test/suites/demo", "make test": "CI", "make release": "test/registry and test/manifests, in parts"},
	"e2e/README.md":  {"make e2e": "CI"},
	"docs/alerts.md": {"kubectl create namespace monitoring": "test/monitoring, with the operator's definitions"},
	"docs/autoscaler.md": {
		"kubectl get novavspheremachinetemplate": "test/autoscaler: nova-bootstrap writes the annotations",
		"kubectl logs":                           "people: cluster-autoscaler is no Go module",
	},
	"docs/clusterctl.md": {
		"make release": "test/suites/release", "docker login": "test/registry, with a login of its own", "cosign verify": "test/registry, with cosign's library",
		"kubectl apply -f out/operator.yaml": "test/suites/release, without the operator", "clusterctl init": "test/suites/clusterctl", "clusterctl upgrade": "test/suites/clusterctl",
		"clusterctl move": "test/suites/clusterctl", "mkdir -p copies": "test/suites/clusterctl",
	},
	"docs/closed-network.md": {
		"make release": "test/registry, over a release of its own", "cosign verify-blob": "test/suites/release",
	},
	"docs/configuration-manager.md": {
		"install -m 0755": "test/suites/puppet, with folders of its own", "sudo -u puppet": "people, on a Puppet server; test/suites/puppet runs the program as the server does",
		"kubectl get secret": "test/suites/puppet reads the Secret in Go", "puppetserver ca generate": "test/suites/puppet",
		"kubectl create secret generic": "test/suites/puppet, with the same keys",
	},
	"docs/controlplane.md": {"etcdctl()": "people, on a node: etcd's image in the bed has no etcdctl"},
	"docs/demo.md":         {"make demo": "test/suites/demo", "kubectl get clusters": "test/suites/demo"},
	"docs/day2.md":         {"for manager in": "people: it is for a management cluster that has no managers yet"},
	"docs/etcd.md":         {"sed 's/^    - etcd$": "test/suites/etcd, on a node", "etcdutl": "test/suites/etcd", "kubectl -n tenants patch novaetcdrestore": "test/suites/etcd"},
	"docs/gitops.md": {
		"cp -R out/gitops": gitops, "git add": gitops, "kubectl annotate gitrepository": gitops, "age-keygen": gitops, "sops encrypt": gitops,
		"cp -R tenants": gitops, "kubectl get kustomization": gitops, "for name in flux": gitops, "git rm": gitops,
		"mkdir -p ../backup": gitops, "kubectl create namespace flux-system": gitops,
	},
	"docs/fleet.md": {
		"kubectl apply -k config/nova-fleet/default": "test/suites/fleet", "kubectl port-forward": "people: no pod runs here; test/suites/fleet requests the page",
	},
	"docs/host-agent.md":  {"kubectl get secret": "people: the tests of bootstrap decode bootstrap data in Go"},
	"docs/node-images.md": {"make node-image": "test/suites/nodeimage, with programs and images of its own"},
	"docs/sign-in.md":     {"kubectl get secret": "controllers/controlplane reads the Secret, people install kubelogin", "bao write": "test/suites/vault", "bao policy": "test/suites/vault"},
	"docs/starvault.md":   {"CLI=bao": "test/suites/vault runs the script", "for manager in": "test/suites/vault makes the same credentials", "kubectl create serviceaccount": "test/suites/vault", "bao auth enable": "test/suites/vault"},
	"docs/first-day.md":   {"export SITE_CHECK_USERNAME": "people, on a real site; test/sitecheck"},
	"docs/security.md":    {"cd out": "people, over a release", "kubectl annotate clusterrolebinding": "people, in a workload cluster"},
	"docs/proxmox.md":     {"pveum": "people, on a node of Proxmox VE"},
	"docs/zvirt.md": {
		"ovirt-aaa-jdbc-tool": "people, on an engine", ". hack/engine.sh": "TestQuickStart of providers/zvirt", "cloud-init clean": "people",
	},
}

const gitops = "test/suites/gitops"

// runsElsewhere returns how a block begins that is not run here.
func runsElsewhere(file, text string) (string, bool) {
	for begin := range elsewhere[file] {
		if strings.HasPrefix(text, begin) {
			return begin, true
		}
	}
	return "", false
}

// meanwhile performs the actions of users and managers between two commands, and ends commands that
// a user would interrupt.
var meanwhile = strings.NewReplacer(
	// A person edits the file.
	"# In next.yaml: another name and template, and no uid, resourceVersion, ownerReferences and status.",
	"sed -i -e 's/^  name: demo-control-plane$/&-next/' -e '/^  uid:/d' -e '/^  resourceVersion:/d' next.yaml",
	"# In next.yaml: another name, the changed fields, and no uid, resourceVersion, ownerReferences and status.",
	"sed -i -e 's/^  name: demo-worker$/&-next/' -e '/^  uid:/d' -e '/^  resourceVersion:/d' next.yaml",
	// The flavor has given it bounds.
	"kubectl annotate machinedeployment demo-worker -n", "kubectl annotate --overwrite machinedeployment demo-worker -n",
	// No user watches the output.
	" -w\n", "\n",
	// The control plane provider writes a new one.
	"delete secret demo-kubeconfig\n", "delete secret demo-kubeconfig --dry-run=server\n",
	// The reader's own.
	"NAMESPACE\n", "$NAMESPACE\n", "NAMESPACE ", "$NAMESPACE ", "novacontrolplane NAME", "novacontrolplane demo-control-plane", "cluster NAME", "cluster demo",
)

// spoken is a namespace that documents speak of. Each document has one of its
// own here.
var spoken = regexp.MustCompile(`\b(tenants|team)\b`)

var _ = Describe("the commands of documents", Ordered, ContinueOnFailure, func() {
	var repository string

	BeforeAll(func(ctx SpecContext) {
		repository = GinkgoT().TempDir()
		out, err := exec.CommandContext(ctx, filepath.Join(tools.Root(), "hack", "components.sh"), repository, version).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		installDefinitions(ctx)
		noteProviders(ctx)
		// Other specs make identities of the same names, which are in no namespace.
		DeferCleanup(func(ctx SpecContext) {
			for _, all := range []client.Object{&vspherev1.NovaVSphereIdentity{}, &zvirtv1.NovaZVirtIdentity{}} {
				Expect(server.Client.DeleteAllOf(ctx, all)).To(Succeed())
			}
		})
	})

	for _, s := range scripts {
		Context(s.file, func() { runs(s, &repository) })
	}

	It("bring a reader of quickstart-vsphere.md to a cluster", func(ctx SpecContext) { followsVSphere(ctx, repository) })

	It("bring a reader of quickstart-zvirt.md to a cluster", func(ctx SpecContext) { followsZVirt(ctx, repository) })

	It("bring a reader of quickstart-proxmox.md to a cluster", func(ctx SpecContext) { followsProxmox(ctx, repository) })

	It("are all run, here or elsewhere", func() {
		here := map[string]bool{"docs/quickstart-vsphere.md": true, "docs/quickstart-zvirt.md": true, "docs/quickstart-proxmox.md": true}
		for _, s := range scripts {
			here["docs/"+s.file] = true
		}
		for file, text := range documents() {
			seen := map[string]bool{}
			for _, b := range blocksIn(text) {
				begin, others := runsElsewhere(file, b.text)
				seen[begin] = true
				if b.language != "yaml" && !here[file] && !others {
					Fail(fmt.Sprintf("no test runs this command of %s:\n%s", file, b.text))
				}
			}
			for begin := range elsewhere[file] {
				Expect(seen).To(HaveKey(begin), "%s has no such commands any more", file)
			}
		}
	})
})

// installDefinitions adds the definitions of Flux, clusterctl, Cluster API Operator and the provider for KubeVirt to the API server. It can be
// called again.
func installDefinitions(ctx context.Context) {
	GinkgoHelper()
	var definitions []string
	for _, name := range []string{"source", "kustomize", "helm"} {
		dir, err := tools.ToolDir(ctx, "components", "github.com/fluxcd/"+name+"-controller")
		Expect(err).NotTo(HaveOccurred())
		definitions = append(definitions, filepath.Join(dir, "config", "crd", "bases"))
	}
	profiles, err := tools.ToolDir(ctx, "cluster-inventory-api", "sigs.k8s.io/cluster-inventory-api")
	Expect(err).NotTo(HaveOccurred())
	definitions = append(definitions, filepath.Join(profiles, "config", "crd", "bases"))
	kubevirt, err := tools.ToolDir(ctx, "capk", "sigs.k8s.io/cluster-api-provider-kubevirt")
	Expect(err).NotTo(HaveOccurred())
	definitions = append(definitions, filepath.Join(kubevirt, "config", "crd", "bases"))
	operator, err := tools.ToolDir(ctx, "operator", "sigs.k8s.io/cluster-api-operator")
	Expect(err).NotTo(HaveOccurred())
	definitions = append(definitions, filepath.Join(operator, "config", "crd", "bases"))
	core, err := tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api")
	Expect(err).NotTo(HaveOccurred())
	definitions = append(definitions, filepath.Join(core, "cmd", "clusterctl", "config", "crd", "bases"))
	_, err = envtest.InstallCRDs(server.Config, envtest.CRDInstallOptions{Paths: definitions})
	Expect(err).NotTo(HaveOccurred())
}

// runs runs one document.
func runs(s script, repository *string) {
	namespace := "guide-" + strings.TrimSuffix(s.file, ".md")
	var dir string
	var env []string

	BeforeAll(func(ctx SpecContext) {
		dir = GinkgoT().TempDir()
		Expect(server.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		env = prepareCommands(ctx, dir, *repository)
		for name, value := range flavorValues {
			env = append(env, name+"="+value)
		}
		env = append(env, "NAMESPACE="+namespace)
		Expect(shell(ctx, dir, env, "kubectl config set-context --current --namespace="+namespace)).To(Succeed())
		if s.demo {
			makeDemo(ctx, dir, env, namespace)
		}
		Expect(shell(ctx, dir, env, s.before)).To(Succeed())
	})

	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", s.file))
	if err != nil {
		panic(err)
	}
	for _, b := range blocksIn(string(text)) {
		name, _, _ := strings.Cut(b.text, "\n")
		theirs := spoken.ReplaceAllString(b.text, namespace)
		_, others := runsElsewhere("docs/"+s.file, b.text)
		switch {
		case b.language == "yaml":
			It("are for manifests that are taken: "+name, func(ctx SpecContext) { applies(ctx, dir, env, namespace, theirs) })
		case !others:
			It("are taken: "+name, func(ctx SpecContext) {
				Expect(shell(ctx, dir, env, meanwhile.Replace(theirs))).To(Succeed())
			})
		}
	}
}

// applies has the API server validate the complete manifests, and writes them to the files that the
// following commands read.
func applies(ctx SpecContext, dir string, env []string, namespace, text string) {
	GinkgoHelper()
	objects, err := Objects([]byte(text))
	if err != nil {
		return // a part of a longer file
	}
	for _, object := range objects {
		group := object.GroupVersionKind().Group
		if object.GetName() == "" || group != "" && !strings.HasSuffix(group, clusterGroup) {
			continue
		}
		Expect(os.WriteFile(filepath.Join(dir, object.GetName()+".yaml"), []byte(text), 0o600)).To(Succeed())
		if object.GetKind() == "MachineHealthCheck" {
			Expect(shell(ctx, dir, env, "kubectl apply -f "+object.GetName()+".yaml")).To(Succeed())
		}
		object.SetName(object.GetName() + "-manifest")
		if !strings.HasSuffix(object.GetKind(), "Identity") {
			object.SetNamespace(namespace)
		}
		Expect(server.Client.Create(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).
			To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
}

// documents are the texts in which commands stand, by their path.
func documents() map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	for _, pattern := range []string{"README.md", "e2e/README.md", "docs/*.md", "docs/adr/*.md", "templates/*/README.md"} {
		paths, err := filepath.Glob(filepath.Join(tools.Root(), filepath.FromSlash(pattern)))
		Expect(err).NotTo(HaveOccurred())
		Expect(paths).NotTo(BeEmpty(), pattern)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			name, err := filepath.Rel(tools.Root(), path)
			Expect(err).NotTo(HaveOccurred())
			found[filepath.ToSlash(name)] = string(text)
		}
	}
	return found
}

// noteProviders creates the inventory of clusterctl init, so that clusterctl knows the installed
// releases.
func noteProviders(ctx context.Context) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "inventory"}}
	Expect(server.Client.Create(ctx, namespace)).To(Succeed())
	for _, p := range Providers() {
		note := &unstructured.Unstructured{Object: map[string]any{"providerName": p.Name, "type": p.Type, "version": version}}
		note.SetAPIVersion("clusterctl.cluster.x-k8s.io/v1alpha3")
		note.SetKind("Provider")
		note.SetNamespace(namespace.Name)
		note.SetName(p.Label)
		note.SetLabels(map[string]string{"clusterctl.cluster.x-k8s.io": "", "cluster.x-k8s.io/provider": p.Label, "clusterctl.cluster.x-k8s.io/core": "inventory"})
		Expect(server.Client.Create(ctx, note)).To(Succeed())
	}
}

// prepareCommands returns an environment in which kubectl and clusterctl are on the path, reach the
// API server and know the release in a repository. Warnings of the API server are failures.
func prepareCommands(ctx context.Context, dir, repository string) []string {
	GinkgoHelper()
	paths, err := tools.Paths(ctx, GinkgoWriter, "kubectl", "clusterctl")
	Expect(err).NotTo(HaveOccurred())
	bin := filepath.Join(dir, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	Expect(os.Symlink(paths["clusterctl"], filepath.Join(bin, "clusterctl"))).To(Succeed())
	strict := "#!/bin/sh\nexec " + paths["kubectl"] + " --warnings-as-errors \"$@\"\n"
	Expect(os.WriteFile(filepath.Join(bin, "kubectl"), []byte(strict), 0o700)).To(Succeed())
	for _, folder := range []string{"templates", "modules", "config"} {
		Expect(os.Symlink(filepath.Join(tools.Root(), folder), filepath.Join(dir, folder))).To(Succeed())
	}
	Expect(os.Mkdir(filepath.Join(dir, "out"), 0o700)).To(Succeed())
	Expect(os.Symlink(repository, filepath.Join(dir, "out", "repository"))).To(Succeed())
	Expect(os.Symlink(filepath.Join(repository, "clusterctl.yaml"), filepath.Join(dir, "out", "clusterctl.yaml"))).To(Succeed())
	configuration, err := os.ReadFile(filepath.Join(repository, "clusterctl.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(string(configuration)).To(ContainSubstring(`CLUSTER_TOPOLOGY: "true"`), "an upgrade without it would turn classes off")
	Expect(os.Mkdir(filepath.Join(dir, "cluster-api"), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "cluster-api", "clusterctl.yaml"), configuration, 0o600)).To(Succeed())
	config := filepath.Join(dir, "kubeconfig")
	Expect(os.WriteFile(config, server.Kubeconfig(), 0o600)).To(Succeed())
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+config, "XDG_CONFIG_HOME="+dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
}

// makeDemo makes the cluster that the documents speak of.
func makeDemo(ctx context.Context, dir string, env []string, namespace string) {
	GinkgoHelper()
	env = append(env, "KUBERNETES_VERSION=v1.35.4")
	Expect(shell(ctx, dir, env, "clusterctl generate yaml --from templates/nova-vsphere/cluster-template.yaml | kubectl apply -f -")).To(Succeed())
	Expect(server.Client.Create(ctx, &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "demo-worker-abcde-fghij", Labels: map[string]string{clusterv1.ClusterNameLabel: "demo"},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       "demo",
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("data")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "NovaVSphereMachine", Name: "demo-worker-abcde-fghij"},
		},
	})).To(Succeed())
	for name, data := range map[string][]byte{"demo-kubeconfig": server.Kubeconfig(), "vsphere-credentials": nil} {
		Expect(server.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{secret.KubeconfigDataName: data},
		})).To(Succeed())
	}
}

// shell runs a script in a folder, and fails with its output.
func shell(ctx context.Context, dir string, env []string, script string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	GinkgoWriter.Printf("%s\n%s\n", script, out)
	if err != nil {
		return errors.Join(fmt.Errorf("running %s: %w", script, err), errors.New(string(out)))
	}
	return nil
}
