package approver

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
)

// The user of nova-bootstrap in a workload cluster has the permissions that the manager uses and no
// others.
func TestUserHasPermissions(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api, err := env.Start(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(api.Stop()).To(Succeed()) })
	user := NewUser(nil)
	g.Expect(user.Permissions.Write(ctx, user.Name, api.Client)).To(BeTrue())
	managerUser, err := api.User(user.Name, workload.ManagersGroup)
	g.Expect(err).NotTo(HaveOccurred())
	workloadClient, err := client.New(managerUser, client.Options{Scheme: api.Scheme})
	g.Expect(err).NotTo(HaveOccurred())

	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "blue"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: "blue"}
	kubeadm := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:node-autoapprove-certificate-rotation"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	g.Expect(client.IgnoreAlreadyExists(api.Client.Create(ctx, kubeadm))).To(Succeed())
	r := &Reconciler{Client: api.Client}
	g.Eventually(func() error { return allowJoin(ctx, workloadClient) }).WithTimeout(10 * time.Second).Should(Succeed())
	g.Expect(r.bindRenewals(ctx, &clusterFacts{cluster: cluster, workload: workloadClient})).To(Succeed())
	g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(kubeadm), kubeadm)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))

	// Requests are decided.
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "join"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Request: newRequest(t, "x", nil),
		Usages: joinUsages,
	}}
	joining := rest.CopyConfig(api.Config)
	joining.Impersonate = rest.ImpersonationConfig{UserName: "nova:machine:x", Groups: []string{"system:bootstrappers:nova", "system:authenticated"}}
	joiner, err := client.New(joining, client.Options{Scheme: api.Scheme})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error { return joiner.Create(ctx, csr) }).WithTimeout(10 * time.Second).Should(Succeed())
	g.Expect(workloadClient.List(ctx, &certificatesv1.CertificateSigningRequestList{})).To(Succeed())
	decided := csr.DeepCopy()
	decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Test"},
	}
	g.Expect(workloadClient.SubResource("approval").Patch(ctx, decided, client.MergeFrom(csr))).To(Succeed())
	g.Expect(workloadClient.Get(ctx, client.ObjectKey{Name: "none"}, &corev1.Node{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))

	// Settings of nodes are written, and no other Secret.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	g.Expect(api.Client.Create(ctx, node)).To(Succeed())
	for range 2 {
		g.Eventually(func() error { return nodesettings.Allow(ctx, workloadClient, node) }).WithTimeout(10 * time.Second).Should(Succeed())
		g.Expect(nodesettings.Write(ctx, workloadClient, node, []byte("x"))).To(Succeed())
	}
	g.Expect(workloadClient.List(ctx, &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem))).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	g.Expect(workloadClient.List(ctx, &corev1.NodeList{}, client.Limit(1))).To(Succeed())

	// Nodes are drained: the pods of a node are evicted, and not deleted.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "drained"}, Spec: corev1.PodSpec{
		NodeName: node.Name, Containers: []corev1.Container{{Name: "x", Image: "x"}},
	}}
	g.Expect(api.Client.Create(ctx, pod)).To(Succeed())
	g.Expect(workloadClient.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)))).To(Succeed())
	helper := &drain.Helper{Client: api.Client, RemoteClient: workloadClient, GracePeriodSeconds: -1}
	pods, err := helper.GetPodsForEviction(ctx, cluster, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault}}, node.Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(workloadClient.Delete(ctx, pod)).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	g.Expect(helper.EvictPods(ctx, pods).PodsDeletionTimestampSet).To(HaveLen(1))
	g.Expect(workloadClient.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "none"}, &appsv1.DaemonSet{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	g.Expect(workloadClient.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &corev1.Service{})).To(Succeed())
	g.Expect(workloadClient.List(ctx, &corev1.SecretList{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	g.Expect(workloadClient.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "more"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: NewUser(nil).Name}},
	})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
}
