package approver

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/joining"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

const (
	// maxRequest is the largest certificate request that is kept and decided. A kubelet's request has
	// less than 2 KiB; a request with 200 addresses has 5 KiB.
	maxRequest = 8 << 10
	// maxUsername and maxUsages are more than any request of a node has.
	maxUsername, maxUsages = 512, 16
	// perUser is the number of open requests of one user that are decided in one pass, the newest
	// first. A kubelet has one request per signer, and a control plane machine without keys of CAs one
	// per certificate.
	perUser = 16
	// perPass is the number of open requests of one cluster that are decided in one pass.
	perPass = 200
)

// kubeletSigners are the signers whose requests are decided.
var kubeletSigners = []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName}

// signers are all signers whose requests are decided. Those for control plane machines are only used
// in clusters whose CAs have their keys elsewhere.
var signers = append(slices.Clone(kubeletSigners), authoritySigners()...)

func authoritySigners() []string {
	var all []string
	for _, a := range certificates.Authorities() {
		all = append(all, a.Signer())
	}
	return all
}

// keepUsed keeps only the fields of certificate requests and Nodes that are used.
func keepUsed(o any) (any, error) {
	if node, is := o.(*corev1.Node); is {
		return puppet.Keep(node), nil
	}
	return keepRequest(o)
}

// keepRequest keeps only the fields of a certificate request that are used to decide it. Every node of
// a workload cluster may create requests of 1.5 MiB for any signer, without a limit on their number.
func keepRequest(o any) (any, error) {
	csr, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return cache.TransformStripManagedFields()(o)
	}
	kept := &certificatesv1.CertificateSigningRequest{TypeMeta: csr.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: csr.Name, UID: csr.UID, ResourceVersion: csr.ResourceVersion,
		CreationTimestamp: csr.CreationTimestamp, DeletionTimestamp: csr.DeletionTimestamp,
	}}
	switch {
	case !slices.Contains(signers, csr.Spec.SignerName):
		return kept, nil
	case isUnsigned(csr):
		kept.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	case !isOpen(csr):
		// One condition marks the request as neither open nor to be signed.
		kept.Spec.SignerName = csr.Spec.SignerName
		kept.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
		return kept, nil
	}
	kept.Spec = certificatesv1.CertificateSigningRequestSpec{
		SignerName: csr.Spec.SignerName, ExpirationSeconds: csr.Spec.ExpirationSeconds,
		// The user may have many groups. No decision depends on the others.
		Groups: slices.DeleteFunc(slices.Clone(csr.Spec.Groups), func(g string) bool { return g != nodesGroup && g != joining.Group }),
	}
	if len(csr.Spec.Username) <= maxUsername {
		kept.Spec.Username = strings.Clone(csr.Spec.Username)
	}
	// A request without its content is denied. The content is never shortened: a usage that was left
	// out would be approved unseen.
	if len(csr.Spec.Request) <= maxRequest && len(csr.Spec.Usages) <= maxUsages {
		kept.Spec.Request, kept.Spec.Usages = bytes.Clone(csr.Spec.Request), slices.Clone(csr.Spec.Usages)
	}
	return kept, nil
}

// isOpen reports whether a request was neither decided nor issued.
func isOpen(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Conditions) == 0 && len(csr.Status.Certificate) == 0
}

// isUnsigned reports whether a request was approved, and has no certificate yet.
func isUnsigned(csr *certificatesv1.CertificateSigningRequest) bool {
	approved := false
	for _, c := range csr.Status.Conditions {
		if c.Type != certificatesv1.CertificateApproved {
			return false
		}
		approved = true
	}
	return approved && len(csr.Status.Certificate) == 0
}

// pick chooses the requests that one pass decides: a few of each user, so that one user's requests do
// not delay those of others. If there are too many users for one pass, the next pass continues after
// the user that pick returns.
func pick(open []*certificatesv1.CertificateSigningRequest, after string) (picked []*certificatesv1.CertificateSigningRequest, last string) {
	by := map[string][]*certificatesv1.CertificateSigningRequest{}
	for _, csr := range open {
		by[csr.Spec.Username] = append(by[csr.Spec.Username], csr)
	}
	users := make([]string, 0, len(by))
	for user := range by {
		users = append(users, user)
	}
	slices.Sort(users)
	at, found := slices.BinarySearch(users, after)
	if found {
		at++
	}
	for _, user := range slices.Concat(users[at:], users[:at]) {
		own := by[user]
		slices.SortFunc(own, func(a, b *certificatesv1.CertificateSigningRequest) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
		})
		own = own[:min(len(own), perUser)]
		if len(picked)+len(own) > perPass {
			return picked, last
		}
		picked, last = append(picked, own...), user
	}
	return picked, ""
}
