package approver

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
)

const (
	// nodeUserPrefix is the prefix of the user names of nodes, all of which are in nodesGroup.
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// csrAction is the action for a certificate request.
type csrAction string

const (
	// ignore leaves the request to another approver.
	ignore csrAction = "Ignore"
	// hold leaves the request pending, because it may turn out to be correct later.
	hold csrAction = "Hold"
	// approve approves the request.
	approve csrAction = "Approve"
	// deny denies the request permanently.
	deny csrAction = "Deny"
	// sign means that the certificate was signed.
	sign csrAction = "Sign"
)

// csrDecision is a action with its reason for the user.
type csrDecision struct {
	action csrAction
	reason string
}

// request is a certificate request of a node.
type request struct {
	username string
	groups   []string
	usages   []certificatesv1.KeyUsage
	// parsed is nil if it cannot be parsed.
	parsed *x509.CertificateRequest
}

// read parses a certificate request.
func read(csr *certificatesv1.CertificateSigningRequest) request {
	r := request{username: csr.Spec.Username, groups: csr.Spec.Groups, usages: csr.Spec.Usages}
	block, rest := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return r
	}
	if parsed, err := x509.ParseCertificateRequest(block.Bytes); err == nil && parsed.CheckSignature() == nil {
		r.parsed = parsed
	}
	return r
}

// names returns the names and addresses in the requested certificate.
func (r request) names() (dns []string, ips []netip.Addr, others bool) {
	for _, ip := range r.parsed.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		others = others || !ok
		ips = append(ips, addr.Unmap())
	}
	return r.parsed.DNSNames, ips, others || len(r.parsed.EmailAddresses) > 0 || len(r.parsed.URIs) > 0
}

// keyHash returns the hash that identifies the requested public key.
func (r request) keyHash() string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(r.parsed.RawSubjectPublicKeyInfo))
}

// isFor reports whether the subject is exactly the node.
func (r request) isFor(node string) bool {
	return r.parsed.Subject.CommonName == nodeUserPrefix+node && slices.Equal(r.parsed.Subject.Organization, []string{nodesGroup})
}

// uses reports whether the requested key usages are exactly the wanted usage. Kubelets request key
// encipherment with RSA keys only.
func (r request) uses(wanted certificatesv1.KeyUsage) bool {
	for _, usage := range r.usages {
		if usage != wanted && usage != certificatesv1.UsageDigitalSignature && usage != certificatesv1.UsageKeyEncipherment {
			return false
		}
	}
	return slices.Contains(r.usages, wanted) && slices.Contains(r.usages, certificatesv1.UsageDigitalSignature)
}

// joiner holds the known state of a machine that requests to join.
type joiner struct {
	// machine is nil if the credential belongs to no machine of the cluster.
	machine *clusterv1.Machine
	// node is true if the workload cluster has a node with the machine's name.
	node bool
	// certified is the hash of the machine's key that was certified before. If not set, no key was
	// certified.
	certified string
}

// decideJoin decides a request for a kubelet's first client certificate. A machine's credential is
// valid for its own node, once: a copy of the credential is useless after the machine has joined.
func decideJoin(r request, from joiner) csrDecision {
	switch m := from.machine; {
	case m == nil:
		return denied("The credential belongs to no Machine of this cluster")
	case r.parsed == nil:
		return denied("The request is not a PKCS #10 certificate request of at most %d KiB", maxRequest>>10)
	case !r.isFor(m.Name):
		return denied("The credential of Machine %s is valid only for node %s", m.Name, m.Name)
	case !r.uses(certificatesv1.UsageClientAuth):
		return denied("A join certificate must be for client authentication only")
	case hasNames(r):
		return denied("A node's client certificate must not have DNS names, addresses or URIs")
	case m.Status.NodeRef.IsDefined() || from.node:
		return denied("Machine %s has joined already, and its credential is valid only once", m.Name)
	case !m.DeletionTimestamp.IsZero():
		return pending("Machine %s is being deleted", m.Name)
	case from.certified != "" && from.certified != r.keyHash():
		return denied("A certificate for another key of Machine %s was approved before", m.Name)
	}
	return csrDecision{approve, "First client certificate of Machine " + from.machine.Name + "'s node"}
}

func hasNames(r request) bool {
	dns, ips, others := r.names()
	return len(dns) > 0 || len(ips) > 0 || others
}

// decideRenewal decides a request for the next client certificate of a kubelet that has joined.
// renewable lists the nodes whose renewals kube-controller-manager approves. It is nil if all are
// approved.
func decideRenewal(r request, m *clusterv1.Machine, renewable []string) csrDecision {
	node := strings.TrimPrefix(r.username, nodeUserPrefix)
	switch {
	case node == r.username || !slices.Contains(r.groups, nodesGroup) || renewable == nil:
		return csrDecision{action: ignore}
	case r.parsed == nil:
		return denied("The request is not a PKCS #10 certificate request")
	case !r.isFor(node):
		return denied("Node %s requests a certificate for another node", node)
	case !r.uses(certificatesv1.UsageClientAuth) || hasNames(r):
		return denied("A node's client certificate must be for client authentication only and must not have DNS names, addresses or URIs")
	case slices.Contains(renewable, node):
		return csrDecision{action: ignore} // kube-controller-manager approves it
	case m == nil:
		return denied("Node %s belongs to no Machine of this cluster", node)
	}
	return pending("Machine %s is being deleted", m.Name)
}

// decideServing decides a request for a kubelet's serving certificate. The certificate may contain only
// the machine's own names and addresses, and no address of other parts of the cluster.
func decideServing(r request, m *clusterv1.Machine, net network, machines []*clusterv1.Machine) csrDecision {
	node := strings.TrimPrefix(r.username, nodeUserPrefix)
	switch {
	case !servesNode(r, m):
		return csrDecision{action: ignore}
	case r.parsed == nil:
		return denied("The request is not a PKCS #10 certificate request of at most %d KiB", maxRequest>>10)
	case !r.isFor(node):
		return denied("Node %s requests a certificate for another node", node)
	case !r.uses(certificatesv1.UsageServerAuth):
		return denied("A kubelet's serving certificate must be for server authentication only")
	}
	dns, ips, others := r.names()
	if others || len(dns)+len(ips) == 0 {
		return denied("A kubelet's serving certificate must have at least one DNS name or IP address, and no URIs or email addresses")
	}
	own := ownNames(node, m)
	for _, name := range dns {
		if !own[name] || net.isShared(name, m) {
			return denied("%q is not a name of Machine %s", name, m.Name)
		}
	}
	return decideAddresses(ips, m, net, machines)
}

// servesNode reports whether the request was made by the node of a machine.
func servesNode(r request, m *clusterv1.Machine) bool {
	return m != nil && strings.HasPrefix(r.username, nodeUserPrefix) && slices.Contains(r.groups, nodesGroup)
}

// decideAddresses decides the addresses of a serving certificate. A denial takes precedence over a
// reason to wait.
func decideAddresses(ips []netip.Addr, m *clusterv1.Machine, net network, machines []*clusterv1.Machine) csrDecision {
	decision := csrDecision{approve, "All names and addresses belong to Machine " + m.Name}
	for _, ip := range ips {
		forAddress := net.decideAddress(ip, m, machines)
		switch {
		case forAddress.action == deny:
			return forAddress
		case forAddress.action == hold:
			decision = forAddress
		case !slices.Contains(addressesOf(m), ip):
			// The hypervisor may report the address later.
			decision = pending("%s is not an address that Machine %s has reported", ip, m.Name)
		case net.unresolved != "" && decision.action == approve && !util.IsControlPlaneMachine(m):
			decision = pending("%s", net.unresolved)
		}
	}
	return decision
}

// ownNames returns the DNS names of a machine, without addresses.
func ownNames(node string, m *clusterv1.Machine) map[string]bool {
	own := map[string]bool{node: true}
	for _, a := range m.Status.Addresses {
		if _, isAddress := address(a.Address); !isAddress {
			own[a.Address] = true
		}
	}
	return own
}
