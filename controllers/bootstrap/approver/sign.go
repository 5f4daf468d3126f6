package approver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// kubeletValidity is the validity of kubelets' certificates. It is that of kube-controller-manager in
// other clusters.
const kubeletValidity = 168 * time.Hour

// decideRenewed decides whether a renewal that kube-controller-manager has approved is signed.
func decideRenewed(r request, m *clusterv1.Machine, renewable []string) csrDecision {
	decision := decideRenewal(r, m, renewable)
	node := strings.TrimPrefix(r.username, nodeUserPrefix)
	if decision.action == ignore && node != r.username && slices.Contains(r.groups, nodesGroup) && slices.Contains(renewable, node) {
		return csrDecision{approve, "Renewal of the certificate of node " + node}
	}
	return decision
}

// signRequest returns the certificate to sign for a request that was decided.
func signRequest(csr *certificatesv1.CertificateSigningRequest, r request, of *controlPlane, node string) pki.SignRequest {
	wanted := pki.SignRequest{
		Authority: certificates.Kubernetes, Request: csr.Spec.Request, CommonName: r.parsed.Subject.CommonName, Organizations: r.parsed.Subject.Organization,
		TTL: kubeletValidity,
	}
	wanted.DNSNames, wanted.IPs, _ = r.names()
	switch a := certificates.AuthorityOf(csr.Spec.SignerName); {
	case a != "":
		c := certificateOf(r, a, node, of.externalEtcd)
		wanted.Role, wanted.Authority, wanted.Client, wanted.Server, wanted.TTL = c.Name, a, c.Client, c.Server, of.validity
	case csr.Spec.SignerName == certificatesv1.KubeletServingSignerName:
		wanted.Role, wanted.Server = pki.RoleKubeletServing, true
	default:
		wanted.Role, wanted.Client = pki.RoleKubeletClient, true
	}
	if seconds := csr.Spec.ExpirationSeconds; seconds != nil {
		wanted.TTL = min(wanted.TTL, time.Duration(*seconds)*time.Second)
	}
	return wanted
}

// signAll signs approved requests. Each one is decided again: other users of the workload cluster may
// approve requests too.
func (r *Reconciler) signAll(ctx context.Context, unsigned []*certificatesv1.CertificateSigningRequest, f *clusterFacts) (waits bool, err error) {
	var errs []error
	for _, csr := range unsigned {
		decision, machine, err := r.sign(ctx, csr, f)
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			waits = true // the watch reports the change
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("signing certificate request %s: %w", csr.Name, err))
			continue
		}
		waits = waits || decision.action == hold
		if decision.action != ignore {
			r.announce(ctx, csr, decision, machine)
		}
	}
	return waits, errors.Join(errs...)
}

// sign signs one request, or marks it as failed.
func (r *Reconciler) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, f *clusterFacts) (csrDecision, *clusterv1.Machine, error) {
	decision, machine, err := r.decide(ctx, csr, f)
	if err != nil {
		return decision, machine, err
	}
	parsed := read(csr)
	if kindOf(csr) == renewalKind {
		decision = decideRenewed(parsed, machine, f.renewable)
	}
	signed := csr.DeepCopy()
	switch decision.action {
	case ignore, hold, sign:
		return decision, machine, nil
	case deny:
		signed.Status.Conditions = append(signed.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "NovaMachine", Message: decision.reason, LastUpdateTime: metav1.Now(),
		})
	case approve:
		node := ""
		if machine != nil {
			node = nodeNameOf(machine)
		}
		wanted := signRequest(csr, parsed, f.controlPlane, node)
		certificate, err := r.Signer.Sign(ctx, client.ObjectKeyFromObject(f.cluster), wanted)
		if err != nil {
			return pending("The certificate is not signed: %v", err), machine, nil
		}
		signed.Status.Certificate, decision.action = certificate, sign
	}
	// It uses a patch, because the cache does not keep the whole object.
	return decision, machine, f.workload.Status().Patch(ctx, signed, client.MergeFromWithOptions(csr, client.MergeFromWithOptimisticLock{}))
}
