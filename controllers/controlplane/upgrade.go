package controlplane

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/loop"
)

// upgrade is what the tenant is moved to.
func upgrade(s *scope) (Upgrade, error) {
	spec := &s.controlPlane.Spec
	network, endpoint := s.cluster.Spec.ClusterNetwork, s.cluster.Spec.ControlPlaneEndpoint
	in := &bootstrap.Input{
		Mode:             bootstrap.Init,
		ClusterNamespace: s.cluster.Namespace,
		ClusterName:      s.cluster.Name,
		Version:          spec.Version,
		Endpoint:         bootstrap.Endpoint{Host: endpoint.Host, Port: endpoint.Port},
		Network: bootstrap.Network{
			Pods: network.Pods.CIDRBlocks, Services: network.Services.CIDRBlocks,
			DNSDomain: network.ServiceDomain, APIServerPort: network.APIServerPort,
		},
		Spec:         spec.Config,
		Platform:     spec.Platform,
		Etcd:         spec.Etcd.Local,
		ExternalEtcd: spec.Etcd.External.Endpoints,
	}
	configuration, err := bootstrap.ClusterConfiguration(in)
	if err != nil {
		return Upgrade{}, fmt.Errorf("rendering ClusterConfiguration: %w", err)
	}
	kubeProxy, err := bootstrap.KubeProxyConfiguration(in)
	if err != nil {
		return Upgrade{}, fmt.Errorf("rendering KubeProxyConfiguration: %w", err)
	}
	_, skipKubeProxy := s.controlPlane.Annotations[controlplanev1.SkipKubeProxyAnnotation]
	_, skipCoreDNS := s.controlPlane.Annotations[controlplanev1.SkipCoreDNSAnnotation]
	return Upgrade{
		Version: spec.Version, Configuration: configuration, KubeProxy: kubeProxy, ImageRepository: spec.Platform.GetImageRepository(),
		SkipKubeProxy: skipKubeProxy || spec.Platform.GetKubeProxyMode() == bootstrapv1.KubeProxyModeNone,
		SkipCoreDNS:   skipCoreDNS,
	}, nil
}

// storedConfiguration keeps kubeadm's stored configuration as the spec says, so
// that the next machine takes its settings from there. Where that does not work
// no machine is made to join with other settings than the spec's, and nothing
// else is kept. One that is gone is not made anew: it may have held what nobody
// here knows, as that etcd runs elsewhere.
func (r *Reconciler) storedConfiguration(ctx context.Context, s *scope) error {
	if s.initialized && s.tenant.Answers && !s.tenant.KubeadmConfig {
		s.noJoin = fmt.Sprintf("ConfigMap %s/%s of the tenant is gone, from which new machines take their settings: make it again",
			metav1.NamespaceSystem, kubeadmConfigName)
		return nil
	}
	if err := r.storeConfiguration(ctx, s); err != nil {
		r.complain(s, "ConfigurationNotStored", "StoreConfiguration", err)
		s.noJoin = loop.Sentence(err)
		s.failures = append(s.failures, err)
	}
	return nil
}

// storeConfiguration stores what has changed. The version is moved by a
// decision of its own.
func (r *Reconciler) storeConfiguration(ctx context.Context, s *scope) error {
	if !s.initialized || !s.tenant.Answers || s.tenant.KubeadmVersion == "" {
		return nil
	}
	want, err := upgrade(s)
	if err != nil {
		return err
	}
	if unknown := unknownVersion(want); unknown != "" {
		r.notApplied(s, controlplanev1.SettingsVersionUnknownReason, unknown)
	}
	want.Version = s.tenant.KubeadmVersion
	next, err := nextConfiguration(s.tenant.KubeadmStored, want.Configuration, want.Version)
	if err != nil {
		return err
	}
	r.refuseNetwork(s, want.Configuration)
	if next == s.tenant.KubeadmStored {
		return nil
	}
	if err := r.Tenants.SetVersion(ctx, s.key(), want); err != nil {
		return fmt.Errorf("storing kubeadm's configuration: %w", err)
	}
	was := s.tenant.KubeadmStored.content
	s.tenant.KubeadmStored = next
	if next.content == was {
		return nil
	}
	r.event(s, corev1.EventTypeNormal, "ConfigurationStored", "StoreConfiguration",
		"Stored the changed settings in kubeadm's configuration, from where new machines take them")
	return nil
}

// refuseNetwork reports a network of the Cluster that is not the one that the
// workload cluster was initialized with. A machine whose API server would listen
// where the endpoint does not lead to is not created.
func (r *Reconciler) refuseNetwork(s *scope, rendered []byte) {
	changed := changedNetworking(s.tenant.KubeadmStored.content, rendered)
	if port := s.cluster.Spec.ClusterNetwork.APIServerPort; port != 0 {
		for _, node := range s.tenant.Nodes {
			if node.APIServerPort != "" && node.APIServerPort != strconv.Itoa(int(port)) {
				s.noJoin = fmt.Sprintf("apiServerPort is %d in the Cluster, and API servers listen on port %s", port, node.APIServerPort)
				changed = append(changed, s.noJoin)
				break
			}
		}
	}
	if len(changed) > 0 {
		r.notApplied(s, controlplanev1.SettingsClusterNetworkChangedReason,
			"spec.clusterNetwork of the Cluster cannot change after kubeadm init: "+strings.Join(changed, ", ")+". Set it back")
	}
}

// syncAddons moves kube-proxy and CoreDNS once every API server has the wanted
// version: neither may be newer than one that it talks to.
func (r *Reconciler) syncAddons(ctx context.Context, s *scope) error {
	if !s.initialized || !s.tenant.Answers || !allAt(s, s.controlPlane.Spec.Version) {
		return nil
	}
	want, err := upgrade(s)
	if err != nil {
		return nil //nolint:nilerr // storedConfiguration has said it, and what comes later needs nothing of it
	}
	changed, err := r.Tenants.SyncAddons(ctx, s.key(), want)
	if len(changed) > 0 {
		r.event(s, corev1.EventTypeNormal, "AddonsUpgraded", "SyncAddons", "Upgraded "+strings.Join(changed, " and "))
	}
	if err != nil {
		r.complain(s, "AddonsUpgradeFailed", "SyncAddons", err)
		return err
	}
	return nil
}

// allAt reports whether all machines and their API servers have a version.
func allAt(s *scope, version string) bool {
	for _, machine := range s.sorted() {
		node := nodeOf(machine, s.tenant.Nodes)
		if machine.Spec.Version != version || node == nil || node.APIServer != version {
			return false
		}
	}
	return len(s.machines) > 0 && s.tenant.KubeadmVersion == version && !strangers(s)
}

// strangers reports whether an API server runs on a node of no machine.
func strangers(s *scope) bool {
	machines := s.sorted()
	for _, node := range s.tenant.Nodes {
		if node.APIServer == "" {
			continue
		}
		if !hasMachine(machines, s.tenant.Nodes, node.Name) {
			return true
		}
	}
	return false
}

func hasMachine(machines []*clusterv1.Machine, nodes []Node, name string) bool {
	for _, machine := range machines {
		if node := nodeOf(machine, nodes); node != nil && node.Name == name {
			return true
		}
	}
	return false
}
