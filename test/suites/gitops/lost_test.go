package gitops

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/release"
)

// follower is the management cluster that follows the bed's, once that is lost.
var follower *bed.Empty

// waves are all Kustomizations of the sample.
var waves = []string{"flux", "classes", "credentials", "modules", "tenants-test", "tenants-production"}

// returnFields is the guide's loop, for a kubectl that is not in the path.
const returnFields = `for file in ../backup/*/*; do
  fields=$("$0" create -f "$file" --dry-run=client --output jsonpath='{.metadata.managedFields}')
  "$0" patch -f "$file" --type merge --patch "{\"metadata\":{\"managedFields\":$fields}}"
done`

// takeOver is the guide's command, for a kubectl that is not in the path.
const takeOver = `"$0" annotate clusters --all --all-namespaces --overwrite \
  nova-platform.io/take-over=$("$0" get namespace kube-system --output jsonpath='{.metadata.uid}')`

// clusterState is the state of a cluster that must not change when its management cluster is replaced.
type clusterState struct {
	// vms are the IDs of its VMs at the hypervisor, by name.
	vms map[string]string
	// machines are the providerIDs of its Machines, by name.
	machines map[string]string
	// nodes are those that are ready.
	nodes []string
	// authorities are its certificate authorities and the key that signs
	// tokens, by the name of their Secret.
	caSecrets map[string]map[string][]byte
}

func clusterStateOf(ctx context.Context, c bed.Cluster) (clusterState, error) {
	s := clusterState{machines: map[string]string{}, caSecrets: map[string]map[string][]byte{}}
	var err error
	if s.vms, err = ids(ctx, c); err != nil {
		return s, err
	}
	machines := &clusterv1.MachineList{}
	if err := b.Client.List(ctx, machines, client.InNamespace(c.Namespace)); err != nil {
		return s, err
	}
	for i := range machines.Items {
		s.machines[machines.Items[i].Name] = machines.Items[i].Spec.ProviderID
	}
	if s.nodes, err = b.ReadyNodes(ctx, c); err != nil {
		return s, err
	}
	for _, purpose := range []string{"ca", "etcd", "proxy", "sa"} {
		found := &corev1.Secret{}
		if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-" + purpose}, found); err != nil {
			return s, err
		}
		s.caSecrets[found.Name] = found.Data
	}
	return s, nil
}

// ids are the IDs of a cluster's VMs at the hypervisor, by name.
func ids(ctx context.Context, c bed.Cluster) (map[string]string, error) {
	all := map[string]string{}
	switch c.Hypervisor {
	case bed.VSphere:
		vms, err := b.Control().VMs(ctx)
		if err != nil {
			return nil, err
		}
		for i := range vms {
			all[vms[i].Name] = vms[i].InstanceUUID
		}
	case bed.Proxmox:
		vms, err := b.Proxmox().VMs(ctx)
		if err != nil {
			return nil, err
		}
		for i := range vms {
			all[vms[i].Name] = vms[i].ID
		}
	default:
		vms, err := b.Engine().VMs(ctx)
		if err != nil {
			return nil, err
		}
		for i := range vms {
			all[vms[i].Name] = vms[i].ID
		}
	}
	own := map[string]string{}
	for name, id := range all {
		if strings.HasPrefix(name, c.Name+"-") {
			own[name] = id
		}
	}
	return own, nil
}

// available are the Deployments that are.
func available(ctx context.Context) ([]string, error) {
	list := &appsv1.DeploymentList{}
	err := b.Client.List(ctx, list)
	var found []string
	for i := range list.Items {
		if list.Items[i].Status.AvailableReplicas == 1 {
			found = append(found, list.Items[i].Name)
		}
	}
	return found, err
}

// follows begins a management cluster with Cluster API, the providers and Flux,
// as the guides say. From then on it is the bed's.
func follows(ctx context.Context, r *repository) {
	GinkgoHelper()
	releases, err := release.Make(ctx, GinkgoWriter, filepath.Join(b.Dir, "bin", "releases"), "v0.1.0")
	Expect(err).NotTo(HaveOccurred())
	flux, err := bed.FluxPrograms(ctx, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	follower, err = b.StartEmpty(ctx, "follower", "10.77.0.2", func(image string) string {
		return cmp.Or(flux(image), releases.Program(image))
	})
	Expect(err).NotTo(HaveOccurred())
	b, r.kubeconfig = follower.Bed, follower.Kubeconfig()
	Expect(kustomizev1.AddToScheme(b.Client.Scheme())).To(Succeed())
	Expect(release.CertManager(ctx, b.Client)).To(Succeed())
	r.run(ctx, programs["clusterctl"], "init", "--config", releases.Config(), "--infrastructure", "nova-vsphere,nova-zvirt,nova-proxmox",
		"--bootstrap", "nova", "--control-plane", "nova", "--addon", "nova")
	Expect(follower.InstallFlux(ctx)).To(Succeed())
	Eventually(available).WithContext(ctx).WithTimeout(reportTimeout).Should(HaveLen(10), "the core, six providers, three of Flux")
}

// loses backs up the objects of the clusters, stops the management cluster and continues with the
// backup and Git in another one.
func loses(ctx context.Context, r *repository) {
	before := map[string]clusterState{}
	copies := func(c bed.Cluster) string { return filepath.Join("..", "backup", c.Namespace) }
	for _, c := range tenants() {
		Eventually(func(g Gomega, ctx context.Context) {
			s, err := clusterStateOf(ctx, c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.nodes).To(HaveLen(len(s.machines)))
			before[c.Name] = s
		}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
		r.run(ctx, "mkdir", "-p", copies(c))
		r.run(ctx, programs["clusterctl"], "move", "--to-directory", copies(c), "--namespace", c.Namespace)
	}
	Expect(b.Lose()).To(Succeed())
	follows(ctx, r)

	By("applying the prerequisites of clusters")
	r.run(ctx, programs["kubectl"], "create", "namespace", fluxNamespace)
	r.run(ctx, programs["kubectl"], "create", "secret", "generic", "sops-age", "--namespace", fluxNamespace, "--from-file=age.agekey="+r.key)
	r.run(ctx, programs["kubectl"], "apply", "--namespace", fluxNamespace, "-f", "flux/repository.yaml", "-f", "flux/classes.yaml", "-f", "flux/credentials.yaml")
	r.run(ctx, programs["kubectl"], "wait", "--namespace", fluxNamespace, "--for=condition=Ready", "kustomization/classes", "kustomization/credentials", "--timeout=5m")
	By("bringing the clusters back")
	for _, c := range tenants() {
		r.run(ctx, programs["clusterctl"], "move", "--from-directory", copies(c))
	}
	r.run(ctx, "sh", "-euc", returnFields, programs["kubectl"])
	r.run(ctx, "sh", "-euc", takeOver, programs["kubectl"])
	By("reconciling them")
	r.run(ctx, programs["kubectl"], "apply", "--kustomize", "flux")
	for _, wave := range waves {
		Eventually(ready).WithContext(ctx).WithArguments(wave).WithTimeout(bootTimeout).Should(HavePrefix("True"), wave)
	}
	for _, c := range tenants() {
		cluster := &clusterv1.Cluster{}
		Expect(b.Client.Get(ctx, c.Key(), cluster)).To(Succeed())
		for _, condition := range []string{clusterv1.ClusterAvailableCondition, "modules.addons.cluster.x-k8s.io/nova-modules.base"} {
			Expect(meta.IsStatusConditionTrue(cluster.Status.Conditions, condition)).To(BeTrue(), "%s of %s", condition, c.Name)
		}
		Expect(clusterStateOf(ctx, c)).To(Equal(before[c.Name]), c.Name)
	}
}

// changesAfterLoss gives acme another worker in the management cluster that
// follows, and leaves its machines alone.
func changesAfterLoss(ctx context.Context, r repository) {
	before, err := ids(ctx, acme)
	Expect(err).NotTo(HaveOccurred())
	r.edit("tenants/test/acme/cluster.yaml", "name: worker, replicas: 2", "name: worker, replicas: 3")
	r.commit(ctx, "Give acme a third worker")
	r.look(ctx)
	Eventually(b.ReadyNodes).WithContext(ctx).WithArguments(acme).WithTimeout(bootTimeout).Should(HaveLen(len(before) + 1))
	after, err := ids(ctx, acme)
	Expect(err).NotTo(HaveOccurred())
	Expect(after).To(HaveLen(len(before) + 1))
	for name, id := range before {
		Expect(after).To(HaveKeyWithValue(name, id))
	}
}

// keepFollower stores the logs of the second management cluster.
func keepFollower(dir string) {
	if follower == nil || !CurrentSpecReport().Failed() {
		return
	}
	if err := follower.CollectArtifacts(dir); err != nil {
		AddReportEntry("collecting artifacts failed", err.Error())
	}
}
