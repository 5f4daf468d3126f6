package manifests

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

var _ = Describe("an annotation that records a step", func() {
	meta := func(ctx SpecContext, annotations ...string) metav1.ObjectMeta {
		GinkgoHelper()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "records-"}}
		Expect(server.Client.Create(ctx, namespace)).To(Succeed())
		m := metav1.ObjectMeta{Namespace: namespace.Name, Name: "recorded", Annotations: map[string]string{"example.com/note": "a"}}
		for _, key := range annotations {
			m.Annotations[key] = "a"
		}
		return m
	}
	restore := func(m metav1.ObjectMeta) client.Object {
		return &controlplanev1.NovaEtcdRestore{ObjectMeta: m, Spec: controlplanev1.NovaEtcdRestoreSpec{
			ControlPlaneRef: controlplanev1.NovaEtcdRestoreControlPlaneReference{Name: "c"},
			Source:          controlplanev1.NovaEtcdRestoreSource{Snapshot: controlplanev1.NovaEtcdRestoreSnapshot{Name: "Latest"}},
		}}
	}
	controlPlane := func(m metav1.ObjectMeta) client.Object {
		return &controlplanev1.NovaControlPlane{ObjectMeta: m, Spec: controlplanev1.NovaControlPlaneSpec{
			Version: "v1.36.3",
			MachineTemplate: controlplanev1.NovaControlPlaneMachineTemplate{Spec: controlplanev1.NovaControlPlaneMachineTemplateSpec{
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "NovaVSphereMachineTemplate", Name: "c"},
			}},
		}}
	}
	config := func(m metav1.ObjectMeta) client.Object { return &bootstrapv1.NovaConfig{ObjectMeta: m} }
	machine := func(m metav1.ObjectMeta) client.Object {
		name := "c"
		return &clusterv1.Machine{ObjectMeta: m, Spec: clusterv1.MachineSpec{
			ClusterName: "c", Bootstrap: clusterv1.Bootstrap{DataSecretName: &name},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "NovaVSphereMachine", Name: "c"},
		}}
	}
	// change patches an object as a user who may do everything.
	change := func(ctx SpecContext, user string, o client.Object, value func(annotations map[string]string)) error {
		GinkgoHelper()
		as := rest.CopyConfig(server.Config)
		as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		c, err := client.New(as, client.Options{Scheme: server.Scheme})
		Expect(err).NotTo(HaveOccurred())
		Expect(client.IgnoreAlreadyExists(server.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "records-of-" + o.GetNamespace()},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}))).To(Succeed())
		changed, is := o.DeepCopyObject().(client.Object)
		Expect(is).To(BeTrue())
		value(changed.GetAnnotations())
		return c.Patch(ctx, changed, client.MergeFrom(o), client.DryRunAll)
	}

	DescribeTable("is changed only by its manager", func(ctx SpecContext, made func(metav1.ObjectMeta) client.Object, key, manager string) {
		o := made(meta(ctx, key))
		Expect(server.Client.Create(ctx, o)).To(Succeed())
		refused := MatchError(ContainSubstring("changes the annotation " + key))
		for what, value := range map[string]func(map[string]string){
			"removed": func(a map[string]string) { delete(a, key) },
			"changed": func(a map[string]string) { a[key] = "b" },
		} {
			// A policy is enforced a moment after it was applied.
			Eventually(func() error { return change(ctx, "admin-of-records", o, value) }).WithContext(ctx).WithTimeout(policyTimeout).Should(refused, what)
			Eventually(func() error { return change(ctx, manager, o, value) }).WithContext(ctx).WithTimeout(policyTimeout).Should(Succeed(), what)
		}
		Expect(change(ctx, "admin-of-records", o, func(a map[string]string) { delete(a, "example.com/note") })).To(Succeed(), "another annotation")
		Expect(change(ctx, "admin-of-records", o, movedAway)).To(Succeed(), "clusterctl move replaces all annotations of the source")
		Expect(server.Client.Delete(ctx, o)).To(Succeed())
	},
		Entry("a restore that is finished", restore, controlplanev1.EtcdRestoreFinishedAnnotation, controlPlaneManager),
		Entry("a restore whose etcd runs", restore, controlplanev1.EtcdRestoredAnnotation, controlPlaneManager),
		Entry("the ID of a restore", restore, controlplanev1.EtcdRestoreIDAnnotation, controlPlaneManager),
		Entry("a remediation", controlPlane, controlplanev1.RemediationAnnotation, controlPlaneManager),
		Entry("an etcd member", machine, controlplanev1.JoinedAnnotation, controlPlaneManager),
		Entry("the key of a kubelet", config, bootstrapv1.CertifiedKeyAnnotation, "system:serviceaccount:nova-bootstrap-system:nova-bootstrap-manager"),
	)

	It("is set by a user when there is none, as clusterctl move does", func(ctx SpecContext) {
		o := restore(meta(ctx))
		Expect(server.Client.Create(ctx, o)).To(Succeed())
		Eventually(func() error {
			return change(ctx, "admin-of-records", o, func(a map[string]string) { a[controlplanev1.EtcdRestoreFinishedAnnotation] = "Failed" })
		}).WithContext(ctx).WithTimeout(policyTimeout).Should(Succeed())
	})
})

// movedAway replaces all annotations as clusterctl move does, before it deletes
// an object of the source.
func movedAway(annotations map[string]string) {
	clear(annotations)
	annotations[clusterctlv1.DeleteForMoveAnnotation] = ""
}

const controlPlaneManager = "system:serviceaccount:nova-control-plane-system:nova-control-plane-manager"
