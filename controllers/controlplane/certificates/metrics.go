package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

// The values of the label of certificates.
const (
	OfMachines   = "Machines"
	ofKubeconfig = "Kubeconfig"
	ofClusterCA  = "ClusterCA"
)

var (
	// ExpireAt is the time at which the first certificate of a control plane expires.
	ExpireAt = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nova_control_plane_certificates_expire_timestamp_seconds",
		Help: "Unix time at which the first certificate of a control plane expires, by owner of the certificates: Machines, Kubeconfig, ClusterCA.",
	}, []string{"namespace", "control_plane", "of"})
	kubeconfigsIssued = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nova_control_plane_kubeconfigs_issued_total",
		Help: "Kubeconfigs written, new or renewed.",
	})
)

func init() { metrics.Registry.MustRegister(ExpireAt, kubeconfigsIssued) }

// SetExpiry sets the metric of when certificates of a kind expire.
func SetExpiry(s *scope.Scope, kind string, at time.Time) {
	labels := []string{s.ControlPlane.Namespace, s.ControlPlane.Name, kind}
	if at.IsZero() {
		ExpireAt.DeleteLabelValues(labels...)
		return
	}
	ExpireAt.WithLabelValues(labels...).Set(float64(at.Unix()))
}

// kubeconfigExpires returns when a kubeconfig's client certificate expires;
// zero if it has none, for instance because a user created it with a token.
func kubeconfigExpires(current *corev1.Secret) time.Time {
	if current == nil {
		return time.Time{}
	}
	config, err := workload.RESTConfig(current.Data[secret.KubeconfigDataName])
	if err != nil {
		return time.Time{}
	}
	return pemExpires(config.CertData)
}

// pemExpires returns when the first certificate in data expires; zero if there
// is none.
func pemExpires(data []byte) time.Time {
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotAfter
}
