package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
)

// render creates the data from all collected facts.
func render(_ context.Context, s *scope) error {
	data, err := bootstrap.Render(input(s))
	if malformed, is := errors.AsType[*bootstrap.RenderError](err); is {
		return reconcile.Blocked(bootstrapv1.RenderingFailedReason, "%s", reconcile.Sentence(malformed))
	}
	if err != nil {
		return fmt.Errorf("rendering bootstrap data: %w", err)
	}
	s.data = data
	return nil
}

// input returns the input for rendering.
func input(s *scope) bootstrap.Input {
	version := s.machine.Spec.Version
	if s.controlPlane != nil {
		version = cmp.Or(version, s.controlPlane.Spec.Version)
	}
	network, endpoint := s.cluster.Spec.ClusterNetwork, s.cluster.Spec.ControlPlaneEndpoint
	return bootstrap.Input{
		Mode:             s.mode,
		ClusterNamespace: s.cluster.Namespace,
		ClusterName:      s.cluster.Name,
		Machine:          s.machine.Name,
		FailureDomain:    s.machine.Spec.FailureDomain,
		Follow:           follows(s.config),
		Version:          version,
		Endpoint:         bootstrap.Endpoint{Host: endpoint.Host, Port: endpoint.Port},
		Network: bootstrap.Network{
			Pods:          network.Pods.CIDRBlocks,
			Services:      network.Services.CIDRBlocks,
			DNSDomain:     network.ServiceDomain,
			APIServerPort: network.APIServerPort,
		},
		Spec:     s.spec,
		Platform: platform(s.config, s.controlPlane),

		PasswordHashes: s.passwordHashes,

		PlatformData:   s.platformData,
		KubeVIP:        kubeVIP(s.controlPlane),
		PKI:            s.pki,
		Keyless:        s.keyless,
		Authorities:    s.authorities,
		Vault:          s.vault,
		Join:           s.join,
		Enrollment:     s.enrollment,
		ClusterTimeout: clusterTimeout(s),
		Etcd:           localEtcd(s.controlPlane),
		ExternalEtcd:   externalEtcd(s.controlPlane),
		Restore:        s.restore,

		RenewCertificates: s.config.GetRenewCertificates(),
	}
}

// clusterTimeout returns how long the machine may wait for its cluster. A waiting worker causes no
// harm, so it waits until its credential expires.
func clusterTimeout(s *scope) time.Duration {
	p := platform(s.config, s.controlPlane)
	if s.mode == bootstrap.JoinWorker {
		return max(s.lifetime, p.GetJoinTimeout())
	}
	return p.GetJoinTimeout()
}

// follows reports whether the host agent of a machine follows the settings of its node.
func follows(config *bootstrapv1.NovaConfig) bool {
	return config.Spec.Rollout.GetInPlace() != bootstrapv1.InPlaceNever
}
