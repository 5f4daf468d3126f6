package controlplane

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
)

var _ = Describe("An object without owner", func() {
	It("is adopted after a restored backup, and nothing is created twice", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)

		var objects []client.Object
		machines := &clusterv1.MachineList{}
		Expect(testEnv.Client.List(ctx, machines, client.InNamespace(r.namespace))).To(Succeed())
		for i := range machines.Items {
			objects = append(objects, &machines.Items[i])
		}
		for _, purpose := range []secret.Purpose{secret.ClusterCA, secret.EtcdCA, secret.FrontProxyCA, secret.ServiceAccount, secret.Kubeconfig} {
			objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: secret.Name(clusterName, purpose)}})
		}
		lock := initlock.Key(client.ObjectKey{Namespace: r.namespace, Name: clusterName})
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: lock.Namespace, Name: lock.Name}})
		owned := map[client.Object][]metav1.OwnerReference{}
		for _, o := range objects {
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			owned[o] = o.GetOwnerReferences()
			Expect(owned[o]).NotTo(BeEmpty(), o.GetName())
			o.SetOwnerReferences(nil)
			Expect(testEnv.Client.Update(ctx, o)).To(Succeed())
		}

		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)
		for _, o := range objects {
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			Expect(o.GetOwnerReferences()).To(Equal(owned[o]), o.GetName())
		}
	})

	It("does not change if it belongs to a user", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		mine := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.namespace, Name: secret.Name(clusterName, secret.Kubeconfig),
				Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
			},
			Data: map[string][]byte{secret.KubeconfigDataName: usersKubeconfig()},
		}
		Expect(testEnv.Client.Create(ctx, mine)).To(Succeed())
		r.reconcileUntilIdle(ctx, direct(testEnv.Config, &fakeClusters{}))
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(mine), mine)).To(Succeed())
		Expect(mine.OwnerReferences).To(BeEmpty())
	})
})
