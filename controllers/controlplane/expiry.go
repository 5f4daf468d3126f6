package controlplane

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/upgrade"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// certificatesExpire returns when a machine's certificates expire; zero if
// unknown.
func certificatesExpire(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) time.Time {
	if node != nil && !node.CertificatesExpire.IsZero() {
		return node.CertificatesExpire
	}
	if config := s.Configs[machine.Name]; config != nil {
		if noted := recordedExpiry(config); !noted.IsZero() {
			return noted
		}
	}
	return machine.Status.CertificatesExpiryDate.Time
}

// certificateLifetime returns the lifetime of the certificates of a new
// machine. It renders the configuration, so it does that only if the spec needs
// it.
func certificateLifetime(s *scope.Scope) time.Duration {
	if s.Cluster == nil || s.ControlPlane.Spec.Rollout.Before.GetWindow() == 0 {
		return 0
	}
	want, err := upgrade.Desired(s)
	if err != nil {
		return kubeadm.CertificateLifetime(nil) // upgrade.Upgrader reports the error.
	}
	return kubeadm.CertificateLifetime(want.Configuration)
}

func recordedExpiry(config *bootstrapv1.NovaConfig) time.Time {
	noted, err := time.Parse(time.RFC3339, config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation])
	if err != nil {
		return time.Time{}
	}
	return noted
}
