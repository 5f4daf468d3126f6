package input

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// CertificatesExpire returns when a machine's certificates expire; zero if
// unknown. Certificates that the host agent has renewed end after the time in the
// NovaConfig; their own expiry is observed some hours later.
func CertificatesExpire(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) time.Time {
	observed := observedExpiry(s, machine, node)
	config := s.Configs[machine.Name]
	if config == nil || observed.IsZero() || scope.Updating(machine) {
		return observed
	}
	if renewed := config.GetRenewCertificates(); renewed.After(observed) {
		return renewed
	}
	return observed
}

func observedExpiry(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) time.Time {
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

func recordedExpiry(config *bootstrapv1.NovaConfig) time.Time {
	noted, err := time.Parse(time.RFC3339, config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation])
	if err != nil {
		return time.Time{}
	}
	return noted
}
