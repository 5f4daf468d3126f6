package bootstrap_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap"
)

var _ = Describe("The user of nova-bootstrap in a workload cluster", func() {
	It("has the permissions that the manager uses and no others", func(ctx SpecContext) {
		workloadClient, err := client.New(managerUser, client.Options{Scheme: api.Scheme})
		Expect(err).NotTo(HaveOccurred())

		b := newBed(ctx)
		cluster := b.bareCluster(ctx, "blue")
		kubeadm := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:node-autoapprove-certificate-rotation"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		}
		Expect(client.IgnoreAlreadyExists(api.Client.Create(ctx, kubeadm))).To(Succeed())
		r := &bootstrap.RequestReconciler{Client: api.Client}
		Eventually(func() error { return r.Prepare(ctx, cluster, workloadClient) }).Should(Succeed())
		Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(kubeadm), kubeadm)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))

		By("deciding requests")
		csr := ask(ctx, as("nova:machine:x", "system:bootstrappers:nova"), certificatesv1.KubeAPIServerClientKubeletSignerName, "x", certificatesv1.UsageClientAuth)
		Expect(workloadClient.List(ctx, &certificatesv1.CertificateSigningRequestList{})).To(Succeed())
		decided := csr.DeepCopy()
		decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Test"},
		}
		Expect(workloadClient.SubResource("approval").Patch(ctx, decided, client.MergeFrom(csr))).To(Succeed())
		Expect(workloadClient.Get(ctx, client.ObjectKey{Name: "none"}, &corev1.Node{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(workloadClient.List(ctx, &corev1.NodeList{}, client.Limit(1))).To(Succeed())
		Expect(workloadClient.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &corev1.Service{})).To(Succeed())
		Expect(workloadClient.List(ctx, &corev1.SecretList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		Expect(workloadClient.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "more"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: bootstrap.NewUser(nil).Name}},
		})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	})
})
