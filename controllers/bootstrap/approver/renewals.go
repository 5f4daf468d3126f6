package approver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

const (
	// renewBinding is the name of the binding whose users may renew their kubelet's client certificate.
	// renewRole is the role that kube-controller-manager checks.
	renewBinding = "nova:renew"
	renewRole    = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
	// kubeadmRenewal is kubeadm's binding, which lets every node renew its certificate.
	kubeadmRenewal = "kubeadm:node-autoapprove-certificate-rotation"
)

// renewal is the written binding for renewals and the time of the write.
type renewal struct {
	nodes []string
	at    time.Time
	// replaced means that kubeadm's binding was found and deleted.
	replaced bool
}

// ownsRenewals reports whether only nodes of Machines may renew their certificates in a cluster.
// Another control plane provider may have nodes without a Machine.
func ownsRenewals(cluster *clusterv1.Cluster) bool {
	ref := cluster.Spec.ControlPlaneRef
	return ref.Kind == "NovaControlPlane" && ref.APIGroup == controlplanev1.GroupVersion.Group
}

// renewable returns the names of the nodes that may renew their certificates:
// those of Machines that are not being deleted, and of MachinePools.
func renewable(machines []*clusterv1.Machine, pools []clusterv1.MachinePool) []string {
	nodes := []string{}
	for _, m := range machines {
		if m.DeletionTimestamp.IsZero() {
			nodes = append(nodes, nodeNameOf(m))
		}
	}
	for i := range pools {
		for _, ref := range pools[i].Status.NodeRefs {
			nodes = append(nodes, ref.Name)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// nodeNameOf returns the name of a machine's node, also before it has joined.
func nodeNameOf(m *clusterv1.Machine) string {
	return cmp.Or(m.Status.NodeRef.Name, m.Name)
}

// bindRenewals allows exactly the nodes of the cluster's Machines to renew their certificates.
// kube-controller-manager continues to approve these requests, so renewals need no management cluster.
func (r *Reconciler) bindRenewals(ctx context.Context, f *clusterFacts) error {
	if !ownsRenewals(f.cluster) {
		return nil
	}
	pools := &clusterv1.MachinePoolList{}
	key := client.ObjectKeyFromObject(f.cluster)
	if err := r.Client.List(ctx, pools, client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}); err != nil {
		return fmt.Errorf("listing MachinePools: %w", err)
	}
	f.renewable = renewable(f.machines, pools.Items)
	known, _ := r.renewals.Get(key)
	if known.replaced && slices.Equal(known.nodes, f.renewable) && time.Since(known.at) < permissionsTTL {
		return nil
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: renewBinding}}
	_, err := controllerutil.CreateOrUpdate(ctx, f.workload, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: renewRole}
		binding.Subjects = nil
		for _, node := range f.renewable {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: nodeUserPrefix + node})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("allowing nodes to renew their certificates: %w", err)
	}
	// kubeadm init creates its binding after the API server's first response, so the deletion is
	// repeated until it has found the binding.
	err = f.workload.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: kubeadmRenewal}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting kubeadm's binding for renewals: %w", err)
	}
	r.renewals.Set(key, renewal{nodes: f.renewable, at: time.Now(), replaced: known.replaced || err == nil})
	return nil
}
