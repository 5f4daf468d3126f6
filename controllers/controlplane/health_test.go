package controlplane

import (
	"context"
	"fmt"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// seenWithin is the time until Available reports a lost quorum if other
// packages use the processors too. The suite on hosts requires 10 s.
const seenWithin = 20 * time.Second

var _ = Describe("The health of a workload cluster", func() {
	It("is reported by conditions, and a lost quorum within 10 seconds", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		machines := r.expectMachines(ctx, 3)
		for i := range machines {
			r.adopt(ctx, &machines[i])
		}
		workloadCluster := startCluster(ctx, r, machines)
		expires := time.Now().Add(100 * 24 * time.Hour).Truncate(time.Second)
		for _, h := range workloadCluster.hosts {
			workloadCluster.serve(ctx, net.JoinHostPort(h.address, "26443"), expires)
		}
		workloadCluster.furnish(ctx)
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: probe.KubeVIPLease},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To(machines[0].Name), RenewTime: ptr.To(metav1.NowMicro()), AcquireTime: ptr.To(metav1.NowMicro()),
			},
		}
		Expect(workloadCluster.client.Create(ctx, lease)).To(Succeed())
		workloadCluster.connect(ctx)
		available := r.condition(ctx, controlplanev1.AvailableCondition)

		By("all being well")
		Eventually(available, "60s").Should(HaveField("Status", metav1.ConditionTrue))
		for _, condition := range []string{
			controlplanev1.EtcdClusterHealthyCondition, controlplanev1.ControlPlaneComponentsHealthyCondition, controlplanev1.EndpointHealthyCondition,
		} {
			Eventually(r.condition(ctx, condition)).Should(HaveField("Status", metav1.ConditionTrue), condition)
		}
		Expect(r.condition(ctx, controlplanev1.EndpointHealthyCondition)()).To(
			HaveField("Message", fmt.Sprintf("Node %s holds the address", machines[0].Name)))
		for i := range machines {
			for _, condition := range machineHealth.Conditions {
				Eventually(machineCondition(ctx, r, machines[i].Name, condition)).Should(HaveField("Status", metav1.ConditionTrue), condition)
			}
			config := &bootstrapv1.NovaConfig{}
			Eventually(func() (string, error) {
				err := testEnv.Client.Get(ctx, r.key(machines[i].Name), config)
				return config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation], err
			}).Should(Equal(expires.UTC().Format(time.RFC3339)))
		}

		By("the manager having its own user there, with only the permissions that it needs")
		binding := &rbacv1.ClusterRoleBinding{}
		Expect(workloadCluster.client.Get(ctx, client.ObjectKey{Name: certificates.ManagerUser}, binding)).To(Succeed())
		Expect(workloadCluster.client.Get(ctx, client.ObjectKey{Name: certificates.AdminsGroup}, binding)).To(Succeed())
		Expect(binding.RoleRef.Name).To(Equal("cluster-admin"))
		asManager, err := workloadCluster.server.AddUser(envtest.User{Name: certificates.ManagerUser}, workloadCluster.config)
		Expect(err).NotTo(HaveOccurred())
		manager, err := client.New(asManager, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		Expect(manager.List(ctx, &corev1.NodeList{})).To(Succeed())
		Expect(manager.List(ctx, &corev1.SecretList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		more := kubeadm.ClusterRoleBinding("more", "cluster-admin", rbacv1.UserKind, certificates.ManagerUser)
		Expect(manager.Create(ctx, &more)).To(MatchError(apierrors.IsForbidden, "IsForbidden"))

		By("kubeadm's stored configuration matching the spec")
		stored := func() (string, error) {
			config := &corev1.ConfigMap{}
			err := workloadCluster.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeadm.ConfigName}, config)
			return config.Data[kubeadm.ConfigurationKey], err
		}
		Eventually(stored).Should(And(ContainSubstring("clusterName: c"), ContainSubstring("dataDir: /var/lib/etcd"),
			ContainSubstring("kubernetesVersion: v1.36.3")))

		By("a member that joins from a machine that is being deleted and has no node")
		members := func(of ...*clusterv1.Machine) facts.Cluster { return realClusters.Observe(ctx, r.key(clusterName), of) }
		ours := []*clusterv1.Machine{&machines[0], &machines[1], &machines[2]}
		leaving := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "leaving", DeletionTimestamp: ptr.To(metav1.Now())}}
		Expect(members(ours...).Again).To(BeZero(), "a healthy workload cluster sends events")
		haveMembers := func(n int) func(Gomega) {
			return func(g Gomega) {
				observed := members(append(ours, leaving)...)
				// The state of a slow etcd is unknown for a moment.
				g.Expect(observed.Etcd).NotTo(BeNil())
				g.Expect(observed).To(And(HaveField("Again", timelimits.LongPoll), HaveField("Etcd.Members", HaveLen(n))))
			}
		}
		Eventually(haveMembers(3), "20s").Should(Succeed())
		remove := workloadCluster.addLearner(ctx, "http://127.77.0.9:2380")
		Eventually(haveMembers(4), "20s").Should(Succeed())
		remove()
		Eventually(haveMembers(3), "20s").Should(Succeed())

		By("a scheduler that has failed")
		pod := &corev1.Pod{}
		key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-scheduler-" + machines[1].Name}
		Expect(workloadCluster.client.Get(ctx, key, pod)).To(Succeed())
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "kube-scheduler", RestartCount: 3}}
		Expect(workloadCluster.client.Status().Update(ctx, pod)).To(Succeed())
		Eventually(machineCondition(ctx, r, machines[1].Name, controlplanev1.MachineSchedulerPodHealthyCondition)).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Reason", controlplanev1.MachinePodFailedReason)))
		Eventually(r.condition(ctx, controlplanev1.ControlPlaneComponentsHealthyCondition)).Should(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("* Machine "+machines[1].Name+":\n  * SchedulerPodHealthy: "))))
		Expect(available()).To(HaveField("Status", metav1.ConditionTrue))

		By("two of three members being lost")
		begun := time.Now()
		workloadCluster.freeze(workloadCluster.hosts[1])
		workloadCluster.freeze(workloadCluster.hosts[2])
		Eventually(available, "30s").Should(HaveField("Status", metav1.ConditionFalse))
		seen := time.Since(begun)
		GinkgoWriter.Printf("lost quorum seen after %s\n", seen.Round(100*time.Millisecond))
		AddReportEntry("lost quorum seen after", seen.Round(100*time.Millisecond).String(), ReportEntryVisibilityAlways)
		Expect(seen).To(BeNumerically("<", seenWithin))
		Eventually(available, "30s").Should(HaveField("Message", ContainSubstring("majority")), "the remaining member reports that it has no leader")
		Expect(r.condition(ctx, controlplanev1.EndpointHealthyCondition)()).To(
			HaveField("Status", metav1.ConditionTrue), "the API server answers for all that")
		Eventually(machineCondition(ctx, r, machines[1].Name, controlplanev1.MachineEtcdMemberHealthyCondition), "30s").Should(
			HaveField("Status", metav1.ConditionFalse))

		By("they having come back")
		workloadCluster.thaw(workloadCluster.hosts[1])
		workloadCluster.thaw(workloadCluster.hosts[2])
		Eventually(available, "60s").Should(HaveField("Status", metav1.ConditionTrue))
		Eventually(r.condition(ctx, controlplanev1.EtcdClusterHealthyCondition), "30s").Should(HaveField("Status", metav1.ConditionTrue))

		By("the address moving to another node")
		Expect(realClusters.MoveEndpoint(ctx, r.key(clusterName), machines[0].Name, machines[2].Name)).To(Succeed())
		Eventually(r.condition(ctx, controlplanev1.EndpointHealthyCondition)).Should(
			HaveField("Message", fmt.Sprintf("Node %s holds the address", machines[2].Name)))
		Expect(workloadCluster.client.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
		Expect(lease.Spec.HolderIdentity).To(HaveValue(Equal(machines[2].Name)))
		Expect(lease.Spec.LeaseTransitions).To(HaveValue(BeEquivalentTo(1)))
		Expect(realClusters.MoveEndpoint(ctx, r.key(clusterName), machines[0].Name, machines[1].Name)).To(Succeed())
		Expect(workloadCluster.client.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
		Expect(lease.Spec.HolderIdentity).To(HaveValue(Equal(machines[2].Name)), "a node that does not hold it cannot transfer it")

		By("another version being made ready")
		Expect(realClusters.SetVersion(ctx, r.key(clusterName), kubeadm.Upgrade{Version: "v1.36.4", Configuration: []byte("clusterName: c\n")})).To(Succeed())
		Expect(stored()).To(And(ContainSubstring("kubernetesVersion: v1.36.4"), ContainSubstring("dataDir: /var/lib/etcd")))
		binding = &rbacv1.ClusterRoleBinding{}
		Expect(workloadCluster.client.Get(ctx, client.ObjectKey{Name: "kubeadm:apiserver-kubelet-client"}, binding)).To(Succeed())
		Expect(binding.Subjects).To(ConsistOf(HaveField("Name", "kube-apiserver-kubelet-client")))
		Expect(realClusters.Fresh(ctx, r.key(clusterName), nil)).To(And(HaveField("Answers", true), HaveField("KubeadmVersion", "v1.36.4")))

		By("the new holder not taking the address, because it does not renew the lease")
		Eventually(func() facts.Endpoint { return realClusters.Observe(ctx, r.key(clusterName), nil).Endpoint }, "40s").Should(And(
			HaveField("Unconfirmed", true), HaveField("Confirmed", false), HaveField("Before", machines[0].Name)))
	}, SpecTimeout(5*time.Minute))
})

// machineCondition polls a condition of a machine.
func machineCondition(ctx context.Context, r *rig, name, condition string) func() (metav1.Condition, error) {
	return func() (metav1.Condition, error) {
		machine := &clusterv1.Machine{}
		if err := testEnv.Client.Get(ctx, r.key(name), machine); err != nil {
			return metav1.Condition{}, err
		}
		return ptr.Deref(conditions.Get(machine, condition), metav1.Condition{}), nil
	}
}
