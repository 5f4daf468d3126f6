package e2e

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// The steps of SelfHostedSpec with another management cluster instead of the
// cluster itself, in which the providers would have to be images.
var _ = describeFull("Move to another management cluster", func(hypervisor string) {
	It("replaces no machine, and the second management cluster deletes all", func() {
		name := "move-" + util.RandomString(6)
		configPath := clusterConfiguration(hypervisor)
		for _, proxy := range managements {
			framework.CreateNamespace(ctx, framework.CreateNamespaceInput{Creator: proxy.GetClient(), Name: name}, "1m", "1s")
		}
		credentials(hypervisor)(managements[0], name)
		made := &clusterctl.ApplyClusterTemplateAndWaitResult{}
		clusterctl.ApplyClusterTemplateAndWait(ctx, clusterctl.ApplyClusterTemplateAndWaitInput{
			ClusterProxy: managements[0],
			ConfigCluster: clusterctl.ConfigClusterInput{
				LogFolder: filepath.Join(artifacts(), "clusters", name), ClusterctlConfigPath: configPath,
				KubeconfigPath: managements[0].GetKubeconfigPath(), InfrastructureProvider: *provider(hypervisor),
				Namespace: name, ClusterName: name, KubernetesVersion: bed.KubernetesVersion,
				ControlPlaneMachineCount: ptr.To[int64](1), WorkerMachineCount: ptr.To[int64](1),
			},
			ControlPlaneWaiters:          waiters(),
			WaitForClusterIntervals:      config().GetIntervals(name, "wait-cluster"),
			WaitForControlPlaneIntervals: config().GetIntervals(name, "wait-control-plane"),
			WaitForMachineDeployments:    config().GetIntervals(name, "wait-worker-nodes"),
		}, made)
		before := machines(managements[0], name)

		clusterctl.Move(ctx, clusterctl.MoveInput{
			LogFolder: filepath.Join(artifacts(), "clusters", name), ClusterctlConfigPath: configPath, Namespace: name,
			FromKubeconfigPath: managements[0].GetKubeconfigPath(), ToKubeconfigPath: managements[1].GetKubeconfigPath(),
		})
		takeOver(managements[1], name)
		framework.VerifyClusterAvailable(ctx, framework.VerifyClusterAvailableInput{Getter: managements[1].GetClient(), Name: name, Namespace: name})
		framework.VerifyMachinesReady(ctx, framework.VerifyMachinesReadyInput{Lister: managements[1].GetClient(), Name: name, Namespace: name})
		Expect(machines(managements[1], name)).To(Equal(before), "the same VMs, by the same names")
		Expect(machines(managements[0], name)).To(BeEmpty())

		framework.DeleteAllClustersAndWait(ctx, framework.DeleteAllClustersAndWaitInput{
			ClusterProxy: managements[1], ClusterctlConfigPath: configPath, Namespace: name, ArtifactFolder: artifacts(),
		}, config().GetIntervals(name, "wait-delete-cluster")...)
		h, err := b.Hypervisor(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		Expect(h.VMs(ctx)).NotTo(ContainElement(Satisfy(func(vm string) bool { return strings.HasPrefix(vm, name) })))
	})
})

// takeOver lets a management cluster manage a cluster that has been moved to
// it.
func takeOver(proxy framework.ClusterProxy, name string) {
	GinkgoHelper()
	system := &corev1.Namespace{}
	Expect(proxy.GetClient().Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system)).To(Succeed())
	cluster := &clusterv1.Cluster{}
	Expect(proxy.GetClient().Get(ctx, client.ObjectKey{Namespace: name, Name: name}, cluster)).To(Succeed())
	before := cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, "nova-platform.io/take-over", string(system.UID))
	Expect(proxy.GetClient().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// machines returns the VMs of a cluster's machines, by the machines' names.
func machines(proxy framework.ClusterProxy, namespace string) map[string]string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(proxy.GetClient().List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Spec.ProviderID
	}
	return found
}
