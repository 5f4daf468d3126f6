package upgrade

import (
	"fmt"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// Desired returns the desired version and configuration of the workload
// cluster.
func Desired(s *scope.Scope) (kubeadm.Upgrade, error) {
	spec := &s.ControlPlane.Spec
	network, endpoint := s.Cluster.Spec.ClusterNetwork, s.Cluster.Spec.ControlPlaneEndpoint
	in := &bootstrap.Input{
		Mode:             bootstrap.Init,
		ClusterNamespace: s.Cluster.Namespace,
		ClusterName:      s.Cluster.Name,
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
		return kubeadm.Upgrade{}, fmt.Errorf("rendering ClusterConfiguration: %w", err)
	}
	kubeProxy, err := bootstrap.KubeProxyConfiguration(in)
	if err != nil {
		return kubeadm.Upgrade{}, fmt.Errorf("rendering KubeProxyConfiguration: %w", err)
	}
	_, skipKubeProxy := s.ControlPlane.Annotations[controlplanev1.SkipKubeProxyAnnotation]
	_, skipCoreDNS := s.ControlPlane.Annotations[controlplanev1.SkipCoreDNSAnnotation]
	return kubeadm.Upgrade{
		Version: spec.Version, Configuration: configuration, KubeProxy: kubeProxy, ImageRepository: spec.Platform.GetImageRepository(),
		SkipKubeProxy: skipKubeProxy || spec.Platform.GetKubeProxyMode() == bootstrapv1.KubeProxyModeNone,
		SkipCoreDNS:   skipCoreDNS,
	}, nil
}
