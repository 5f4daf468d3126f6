package clusterctl

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// tenant is a workload cluster on a hypervisor.
func tenant(hypervisor string) bed.Cluster {
	return bed.Cluster{
		Name: hypervisor, Namespace: "tenant-" + hypervisor, Hypervisor: hypervisor,
		ControlPlanes: 1, Workers: 2, Endpoint: address(hypervisor, 20),
	}
}

// address returns an address that no cluster on another hypervisor has.
func address(hypervisor string, first int) string {
	return "10.77.0." + strconv.Itoa(first+10*bed.Index(hypervisor))
}

// images are those of all managers that are available.
func images(ctx context.Context, cluster *bed.Empty) ([]string, error) {
	list := &appsv1.DeploymentList{}
	if err := cluster.Client.List(ctx, list, client.HasLabels{clusterv1.ProviderNameLabel}); err != nil {
		return nil, err
	}
	var found []string
	for i := range list.Items {
		if list.Items[i].Status.AvailableReplicas == 1 && list.Items[i].Status.UpdatedReplicas == 1 {
			name, tag := bed.ImageName(list.Items[i].Spec.Template.Spec.Containers[0].Image)
			found = append(found, name+" "+tag)
		}
	}
	return found, nil
}

// managersOf are the images of all managers of a release, and the core's.
func managersOf(version string) []any {
	all := []any{HavePrefix("cluster-api-controller ")}
	for _, name := range append(bed.Providers(bed.Hypervisors()...), bed.AddonProvider) {
		all = append(all, name+" "+version)
	}
	return all
}

// states are the states of the VMs of a workload cluster in the management cluster that it moved
// to. VMs without a host never have an address.
func states(ctx context.Context, c bed.Cluster) ([]string, error) {
	machines, err := infraMachines(ctx, two, c)
	if err != nil {
		return nil, err
	}
	var found []string
	for i := range machines {
		conditions, _, err := unstructured.NestedSlice(machines[i].Object, "status", "conditions")
		if err != nil {
			return nil, err
		}
		for _, condition := range conditions {
			if condition := condition.(map[string]any); condition["type"] == clusterv1.ReadyCondition {
				found = append(found, condition["reason"].(string))
			}
		}
	}
	return found, nil
}

// ready is the number of ready nodes of a workload cluster, according to the management cluster
// that it moved to.
func ready(ctx context.Context, c bed.Cluster) (int, error) { return readyIn(ctx, two, c) }

// readyIn is the number of ready nodes of a workload cluster, according to a management cluster.
func readyIn(ctx context.Context, in *bed.Empty, c bed.Cluster) (int, error) {
	tenant, err := in.TenantClient(ctx, c.Key())
	if err != nil {
		return 0, err
	}
	nodes := &corev1.NodeList{}
	if err := tenant.List(ctx, nodes); err != nil {
		return 0, err
	}
	count := 0
	for i := range nodes.Items {
		for _, condition := range nodes.Items[i].Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				count++
			}
		}
	}
	return count, nil
}

// available reports whether a cluster is Available, without the cache.
func available(ctx context.Context, c bed.Cluster) (bool, error) {
	cluster := &clusterv1.Cluster{}
	err := two.Client.Get(ctx, c.Key(), cluster)
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterAvailableCondition), err
}

// awaitDeleted waits until neither a VM nor the Cluster is left of a cluster in the
// management cluster that it moved to.
func awaitDeleted(ctx context.Context, c bed.Cluster) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(b.VMsOf(ctx, c)).To(BeEmpty())
		for _, in := range []*bed.Empty{one, two} {
			list := &clusterv1.ClusterList{}
			g.Expect(in.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
			g.Expect(list.Items).To(BeEmpty())
		}
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed())
}

// copies is the folder with copies of a cluster's objects.
func copies(c bed.Cluster) string { return filepath.Join(dir, "copies", c.Name) }

// pretendNodes sets node references on machines, because clusterctl refuses to move machines
// without nodes. A machine that is created during the move is not checked. Status does not move, so
// the new managers read the real state. The bootstrap provider removes the data of a machine with a
// node, which these machines still need: their NovaConfigs stay paused until the move.
func pretendNodes(ctx context.Context, c bed.Cluster) {
	GinkgoHelper()
	pauseConfigs(ctx, one, c, true)
	cluster := &clusterv1.Cluster{}
	Expect(one.Client.Get(ctx, c.Key(), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason,
	})
	Expect(one.Client.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
	list := &clusterv1.MachineList{}
	Expect(one.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
	for i := range list.Items {
		machine := &list.Items[i]
		before := machine.DeepCopy()
		machine.Status.NodeRef.Name = machine.Name
		Expect(one.Client.Status().Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
	}
}

// pauseConfigs pauses the NovaConfigs of a cluster, or resumes them, and waits until their
// controller reports that.
func pauseConfigs(ctx context.Context, in *bed.Empty, c bed.Cluster, paused bool) {
	GinkgoHelper()
	list := &bootstrapv1.NovaConfigList{}
	Expect(in.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
	for i := range list.Items {
		config := &list.Items[i]
		before := config.DeepCopy()
		delete(config.Annotations, clusterv1.PausedAnnotation)
		if paused {
			metav1.SetMetaDataAnnotation(&config.ObjectMeta, clusterv1.PausedAnnotation, "")
		}
		Expect(in.Client.Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(in.Client.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(config.Status.Conditions, clusterv1.PausedCondition)).To(Equal(paused))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
	}
}

// creations is the number of VM creations that were requested from a hypervisor.
func creations(ctx context.Context, c bed.Cluster) (int, error) {
	return requested(ctx, c, func(f bed.Facts) string { return f.CreateRequest })
}

// passed is the number of VMs whose bootstrap data was passed to a hypervisor.
func passed(ctx context.Context, c bed.Cluster) (int, error) {
	return requested(ctx, c, func(f bed.Facts) string { return f.DataRequest })
}

// requested counts requests to a hypervisor.
func requested(ctx context.Context, c bed.Cluster, name func(bed.Facts) string) (int, error) {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return 0, err
	}
	requests, err := h.Requests(ctx)
	if err != nil {
		return 0, err
	}
	return requests[name(h.Facts())], nil
}

// credentials creates the Secret with the credentials of a hypervisor in the
// namespace of a cluster. The manager sets the label that makes clusterctl move it.
func credentials(ctx context.Context, c bed.Cluster) error {
	h, err := b.Hypervisor(c.Hypervisor)
	if err != nil {
		return err
	}
	data, err := h.Credentials()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{StringData: data}
	secret.Namespace, secret.Name = c.Namespace, h.Facts().CredentialsSecret
	return one.Client.Create(ctx, secret)
}

var _ = Describe("clusterctl", Ordered, ContinueOnFailure, func() {
	hypervisors := []string{bed.VSphere, bed.ZVirt}
	if everything {
		hypervisors = bed.Hypervisors()
	}
	tenants := make([]bed.Cluster, len(hypervisors))
	for i, hypervisor := range hypervisors {
		tenants[i] = tenant(hypervisor)
	}

	It("installs all providers into two management clusters", func(ctx context.Context) {
		for _, cluster := range []*bed.Empty{one, two} {
			var infrastructure []string
			for _, hypervisor := range bed.Hypervisors() {
				infrastructure = append(infrastructure, "nova-"+hypervisor+":"+first)
			}
			clusterctl(ctx, cluster, "init", "--infrastructure", strings.Join(infrastructure, ","),
				"--bootstrap", "nova:"+first, "--control-plane", "nova:"+first, "--addon", "nova:"+first)
		}
		for _, cluster := range []*bed.Empty{one, two} {
			Eventually(images).WithContext(ctx).WithArguments(cluster).WithTimeout(installTimeout).Should(ConsistOf(managersOf(first)...))
			for _, c := range tenants {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
				Expect(cluster.Client.Create(ctx, namespace)).To(Succeed())
			}
		}
	})

	if everything {
		// test/manifests tests the responses of the API server without clusterctl, too.
		It("generates every flavor", generatesFlavors)
	}

	// One after the other: their machines are still being made when they move.
	for _, c := range tenants {
		It("makes a cluster of the default template on "+c.Hypervisor, func(ctx context.Context) {
			Expect(credentials(ctx, c)).To(Succeed())
			makesIdentity(ctx, c)
			objects, err := bed.Suit([]byte(generate(ctx, c, "", nil)), c)
			Expect(err).NotTo(HaveOccurred())
			Eventually(func() error { return bed.Apply(ctx, one.Client, objects...) }).WithTimeout(changeTimeout).Should(Succeed())
		})

		It("reports the progress while machines are created on "+c.Hypervisor, func(ctx context.Context) {
			Eventually(creations).WithContext(ctx).WithArguments(c).WithTimeout(changeTimeout).Should(BeNumerically(">=", 1))
			out := clusterctl(ctx, one, "describe", "cluster", c.Name, "-n", c.Namespace, "--show-conditions", "all", "--grouping=false", "--echo")
			Expect(out).To(MatchRegexp(`NovaControlPlane \S*` + c.Name + `-control-plane`))
			Expect(out).To(ContainSubstring("Waiting for the first machine to initialize the cluster"))
		})

		It("moves a cluster whose VMs are being made on "+c.Hypervisor, func(ctx context.Context) {
			_, err := command(ctx, "clusterctl", nil, "move", "--kubeconfig", one.Kubeconfig(), "--to-kubeconfig", two.Kubeconfig(), "-n", c.Namespace)
			Expect(err).To(MatchError(ContainSubstring("still provisioning the node")))
			// The drivers of the other management cluster do not know the steps of a creation that were
			// done after its bootstrap data was passed.
			Eventually(func(g Gomega, ctx context.Context) {
				created, err := creations(ctx, c)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(passed(ctx, c)).To(Equal(created))
			}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed())
			pretendNodes(ctx, c)
			had, err := belongings(ctx, one, c)
			Expect(err).NotTo(HaveOccurred())
			clusterctl(ctx, one, "move", "--to-kubeconfig", two.Kubeconfig(), "-n", c.Namespace)
			Expect(infraMachines(ctx, two, c)).To(ContainElement(HaveField("Object", HaveKeyWithValue("spec", Not(HaveKey("providerID"))))),
				"else nothing was in flight")
			pauseConfigs(ctx, two, c, false)
			arrives(ctx, c, had)
			takesOver(ctx, two, c)
			sharesIdentity(ctx, c)
		})
	}

	for _, c := range tenants {
		It("makes each VM once on "+c.Hypervisor, func(ctx context.Context) {
			Eventually(states).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(And(
				HaveLen(c.ControlPlanes+c.Workers), HaveEach(BeElementOf(infrav1.WaitingForAddressesReason, clusterv1.ReadyReason)),
			))
			if everything {
				Eventually(ready).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(Equal(c.ControlPlanes + c.Workers))
			}
			Expect(b.VMsOf(ctx, c)).To(HaveLen(c.ControlPlanes + c.Workers))
			Expect(creations(ctx, c)).To(Equal(c.ControlPlanes + c.Workers))
		})
	}

	if everything {
		describeChanging()
	}

	for _, hypervisor := range classes() {
		It("makes clusters of the class on "+hypervisor, func(ctx context.Context) { makesClustersOfClasses(ctx, hypervisor) })
	}

	It("upgrades to the next release", func(ctx context.Context) {
		before := map[string]int{}
		for _, c := range tenants {
			var err error
			before[c.Name], err = creations(ctx, c)
			Expect(err).NotTo(HaveOccurred())
		}
		plan := clusterctl(ctx, two, "upgrade", "plan")
		Expect(plan).To(MatchRegexp(`nova-vsphere +nova-vsphere-system +InfrastructureProvider +` + regexp.QuoteMeta(first) + ` +` + regexp.QuoteMeta(next)))
		clusterctl(ctx, two, "upgrade", "apply", "--contract", clusterv1.GroupVersion.Version)
		Eventually(images).WithContext(ctx).WithArguments(two).WithTimeout(installTimeout).Should(ConsistOf(managersOf(next)...))
		for _, c := range tenants {
			Expect(creations(ctx, c)).To(Equal(before[c.Name]), "a new manager makes no VM again")
		}
	})

	if everything {
		It("continues from copies in a directory after the loss of a management cluster", func(ctx context.Context) {
			before := map[string]int{}
			for _, c := range tenants {
				Expect(os.MkdirAll(copies(c), 0o700)).To(Succeed())
				clusterctl(ctx, two, "move", "--to-directory", copies(c), "-n", c.Namespace)
				var err error
				before[c.Name], err = creations(ctx, c)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(two.Stop()).To(Succeed())
			two = one
			for _, c := range tenants {
				_, err := command(ctx, "clusterctl", nil, "move", "--from-directory", copies(c), "--to-kubeconfig", two.Kubeconfig())
				Expect(err).NotTo(HaveOccurred())
			}
			for _, c := range tenants {
				takesOver(ctx, two, c)
			}
			for _, c := range tenants {
				Eventually(available).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(BeTrue())
				Expect(ready(ctx, c)).To(Equal(c.ControlPlanes + c.Workers))
				Expect(creations(ctx, c)).To(Equal(before[c.Name]), "no machine is replaced")
			}
		})
	}

	It("leaves nothing of clusters that are deleted, and then nothing of itself", func(ctx context.Context) {
		all := tenants
		if everything {
			// Those of classes are in the management cluster that is left.
			for _, hypervisor := range classes() {
				all = append(all, classed(hypervisor))
			}
		}
		for _, c := range all {
			Expect(two.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
		}
		for _, c := range all {
			awaitDeleted(ctx, c)
		}
		for _, c := range tenants {
			shared, _ := identity(c)
			Expect(two.Client.Delete(ctx, shared)).To(Succeed())
		}
		clusterctl(ctx, two, "delete", "--all")
		Eventually(images).WithContext(ctx).WithArguments(two).WithTimeout(changeTimeout).Should(BeEmpty())
	})
})
