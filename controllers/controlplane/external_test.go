package controlplane

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// handOver stores the Secrets for an external etcd, with the given lifetime.
func handOver(ctx context.Context, r *rig, ttl time.Duration) {
	GinkgoHelper()
	theirs := pki.NewManaged(testEnv.Client)
	key := r.key("theirs")
	Expect(theirs.Ensure(ctx, key, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}, 0)).To(Succeed())
	pair, ca, err := theirs.EtcdClient(ctx, key, pki.ClientRequest{CommonName: "nova", TTL: ttl})
	Expect(err).NotTo(HaveOccurred())
	for name, data := range map[string]map[string][]byte{
		secret.Name(clusterName, secret.EtcdCA):              {secret.TLSCrtDataName: ca},
		secret.Name(clusterName, secret.APIServerEtcdClient): {secret.TLSCrtDataName: pair.Certificate, secret.TLSKeyDataName: pair.Key},
	} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}, Data: data}
		Expect(client.IgnoreNotFound(testEnv.Client.Delete(ctx, s.DeepCopy()))).To(Succeed())
		Expect(testEnv.Client.Create(ctx, s)).To(Succeed())
	}
}

var _ = Describe("External etcd", func() {
	expectCondition := func(ctx context.Context, r *rig, condition string, status metav1.ConditionStatus, message string) {
		GinkgoHelper()
		Expect(r.condition(ctx, condition)()).To(And(HaveField("Status", status), HaveField("Message", ContainSubstring(message))), condition)
	}

	It("without its client's Secret blocks only joins, and reports it", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Etcd.External.Endpoints = []string{"https://127.0.0.1:1"}
		})
		handOver(ctx, r, time.Hour)
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		now := time.Now()
		reconciler.Now = func() time.Time { return now }
		r.reconcileUntilIdle(ctx, reconciler)
		By("an endpoint that does not answer, before the first machine is up")
		expectCondition(ctx, r, controlplanev1.EtcdClusterHealthyCondition, metav1.ConditionFalse, "Endpoint https://127.0.0.1:1 does not answer")
		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true}
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		expectCondition(ctx, r, controlplanev1.CertificatesAvailableCondition, metav1.ConditionTrue, "")
		expectCondition(ctx, r, controlplanev1.EtcdClusterHealthyCondition, metav1.ConditionFalse, "Endpoint https://127.0.0.1:1 does not answer")

		By("deleting the Secret, while a machine is deleted and another one is missing")
		Expect(deleteSecret(ctx, r, secret.Name(clusterName, secret.APIServerEtcdClient))).To(Succeed())
		Expect(deleteSecret(ctx, r, secret.Name(clusterName, secret.Kubeconfig))).To(Succeed())
		goes := &machines[0]
		goes.Finalizers = []string{clusterv1.MachineFinalizer}
		Expect(testEnv.Client.Update(ctx, goes)).To(Succeed())
		Expect(testEnv.Client.Delete(ctx, goes)).To(Succeed())
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(goes), goes)).To(Succeed())
		conditions.Set(goes, metav1.Condition{
			Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
		})
		Expect(testEnv.Client.Status().Update(ctx, goes)).To(Succeed())
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(5)) })
		now = now.Add(timelimits.Fresh)
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(testEnv.Client.Get(ctx, r.key(secret.Name(clusterName, secret.Kubeconfig)), &corev1.Secret{})).To(Succeed())
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(goes), goes)).To(Succeed())
		Expect(goes.Annotations).NotTo(HaveKey(controlplanev1.MachineHookAnnotation))
		const missing = "external etcd also requires Secret c-apiserver-etcd-client"
		expectCondition(ctx, r, controlplanev1.AvailableCondition, metav1.ConditionTrue, "")
		expectCondition(ctx, r, controlplanev1.CertificatesAvailableCondition, metav1.ConditionFalse, missing)
		expectCondition(ctx, r, controlplanev1.EtcdClusterHealthyCondition, metav1.ConditionFalse, missing)

		By("deleting only this Secret")
		goes.Finalizers = nil
		Expect(testEnv.Client.Update(ctx, goes)).To(Succeed())
		r.reconcileUntilIdle(ctx, reconciler)
		expectCondition(ctx, r, controlplanev1.ScalingUpCondition, metav1.ConditionTrue, "No machine can join: Secret c-etcd")

		By("storing an expired certificate")
		handOver(ctx, r, time.Nanosecond)
		r.reconcileUntilIdle(ctx, reconciler)
		const expired = "Secret c-apiserver-etcd-client: tls.crt has expired"
		expectCondition(ctx, r, controlplanev1.CertificatesAvailableCondition, metav1.ConditionFalse, expired)
		expectCondition(ctx, r, controlplanev1.EtcdClusterHealthyCondition, metav1.ConditionFalse, expired)

		By("a good one")
		handOver(ctx, r, time.Hour)
		r.reconcileUntilIdle(ctx, reconciler)
		expectCondition(ctx, r, controlplanev1.CertificatesAvailableCondition, metav1.ConditionTrue, "")
		list, err := r.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(5))
	})
})
