package upgrade

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// Upgrader keeps the objects of kubeadm in the workload cluster in line with the
// spec.
type Upgrader struct{ *scope.Config }

// KeepConfiguration keeps kubeadm's stored configuration in sync with the
// spec, because the next machine reads its settings from there. If that fails,
// no machine is created that would join with other settings, and nothing else
// is blocked. A missing configuration is not recreated: it may have had
// settings that this controller does not know, for instance an external etcd.
func (r *Upgrader) KeepConfiguration(ctx context.Context, s *scope.Scope) error {
	if s.Initialized && s.Workload.Answers && !s.Workload.KubeadmConfig {
		s.JoinBlocked = fmt.Sprintf("ConfigMap %s/%s with the settings of new machines does not exist in the workload cluster: restore it",
			metav1.NamespaceSystem, kubeadm.ConfigName)
		return nil
	}
	if err := r.writeConfiguration(ctx, s); err != nil {
		r.Warn(s, controlplanev1.ConfigurationNotStoredEventReason, "StoreConfiguration", err)
		s.JoinBlocked = reconcile.Sentence(err)
		s.Failures = append(s.Failures, err)
	}
	return nil
}

// writeConfiguration stores changed settings. The version is updated by its own
// action.
func (r *Upgrader) writeConfiguration(ctx context.Context, s *scope.Scope) error {
	if !s.Initialized || !s.Workload.Answers || s.Workload.KubeadmVersion == "" {
		return nil
	}
	want, err := Desired(s)
	if err != nil {
		return err
	}
	if unknown := kubeadm.UnknownCoreDNS(want); unknown != "" {
		r.notApplied(s, controlplanev1.SettingsVersionUnknownReason, unknown)
	}
	want.Version = s.Workload.KubeadmVersion
	next, err := kubeadm.NextConfiguration(s.Workload.KubeadmStored, want.Configuration, want.Version)
	if err != nil {
		return err
	}
	r.refuseNetwork(s, want.Configuration)
	if next == s.Workload.KubeadmStored {
		return nil
	}
	if err := r.WorkloadClusters.SetVersion(ctx, s.Key(), want); err != nil {
		return fmt.Errorf("storing kubeadm's configuration: %w", err)
	}
	was := s.Workload.KubeadmStored.Content
	s.Workload.KubeadmStored = next
	if next.Content == was {
		return nil
	}
	r.Event(s, corev1.EventTypeNormal, "ConfigurationStored", "StoreConfiguration",
		"Stored the changed settings in kubeadm's configuration, which new machines use")
	return nil
}

// refuseNetwork reports a network of the Cluster that differs from the network
// that the workload cluster was initialized with. No machine is created whose
// API server would listen on another port than the endpoint's.
func (r *Upgrader) refuseNetwork(s *scope.Scope, rendered []byte) {
	changed := kubeadm.ChangedNetworking(s.Workload.KubeadmStored.Content, rendered)
	if port := s.Cluster.Spec.ClusterNetwork.APIServerPort; port != 0 {
		for _, node := range s.Workload.Nodes {
			if node.APIServerPort != "" && node.APIServerPort != strconv.Itoa(int(port)) {
				s.JoinBlocked = fmt.Sprintf("apiServerPort is %d in the Cluster, and API servers listen on port %s", port, node.APIServerPort)
				changed = append(changed, s.JoinBlocked)
				break
			}
		}
	}
	if len(changed) > 0 {
		r.notApplied(s, controlplanev1.SettingsClusterNetworkChangedReason,
			"spec.clusterNetwork of the Cluster cannot change after kubeadm init: "+strings.Join(changed, ", ")+". Set it back")
	}
}

// SyncAddons updates kube-proxy and CoreDNS once every API server has the
// desired version: neither may be newer than an API server that it connects to.
func (r *Upgrader) SyncAddons(ctx context.Context, s *scope.Scope) error {
	if !s.Initialized || !s.Workload.Answers || !allAt(s, s.ControlPlane.Spec.Version) {
		return nil
	}
	want, err := Desired(s)
	if err != nil {
		return nil //nolint:nilerr // KeepConfiguration has reported it, and later steps do not depend on it
	}
	changed, err := r.WorkloadClusters.SyncAddons(ctx, s.Key(), want)
	if len(changed) > 0 {
		r.Event(s, corev1.EventTypeNormal, "AddonsUpgraded", "SyncAddons", "Upgraded "+strings.Join(changed, " and "))
	}
	if err != nil {
		r.Warn(s, controlplanev1.AddonsUpgradeFailedEventReason, "SyncAddons", err)
		return err
	}
	return nil
}

// allAt reports whether all machines and their API servers have a version.
func allAt(s *scope.Scope, version string) bool {
	for _, machine := range s.Sorted() {
		node := facts.NodeOf(machine, s.Workload.Nodes)
		if machine.Spec.Version != version || node == nil || node.APIServer != version {
			return false
		}
	}
	return len(s.Machines) > 0 && s.Workload.KubeadmVersion == version && !foreignAPIServer(s)
}

// foreignAPIServer reports whether an API server runs on a node without a machine.
func foreignAPIServer(s *scope.Scope) bool {
	machines := s.Sorted()
	for _, node := range s.Workload.Nodes {
		if node.APIServer == "" {
			continue
		}
		if !hasMachine(machines, s.Workload.Nodes, node.Name) {
			return true
		}
	}
	return false
}

func hasMachine(machines []*clusterv1.Machine, nodes []facts.Node, name string) bool {
	for _, machine := range machines {
		if node := facts.NodeOf(machine, nodes); node != nil && node.Name == name {
			return true
		}
	}
	return false
}
