package approver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// controlPlane are the settings of a control plane whose machines have no keys of CAs.
type controlPlane struct {
	// names are the names and addresses of the API servers, without those of a machine.
	names certificates.Names
	// externalEtcd is true if no machine has a member of etcd.
	externalEtcd bool
	// validity is the longest validity of a certificate.
	validity time.Duration
}

// controlPlaneOf reads the settings of the control plane of a cluster.
func controlPlaneOf(ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster) (*controlPlane, error) {
	found := &controlplanev1.NovaControlPlane{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}, found); err != nil {
		return nil, fmt.Errorf("reading NovaControlPlane: %w", err)
	}
	spec := &found.Spec
	c := &controlPlane{externalEtcd: len(spec.Etcd.External.Endpoints) > 0, validity: spec.Platform.GetCertificateValidity()}
	network, endpoint := cluster.Spec.ClusterNetwork, cluster.Spec.ControlPlaneEndpoint
	var err error
	c.names.DNSNames, c.names.IPs, err = bootstrap.APIServerNames(
		bootstrap.Network{Services: network.Services.CIDRBlocks, DNSDomain: network.ServiceDomain},
		bootstrap.Endpoint{Host: endpoint.Host, Port: endpoint.Port}, spec.Platform.APIServer.CertSANs)
	return c, err
}

// certificateOf returns the certificate of a control plane machine that is requested; nil if there is
// none with this subject and these uses.
func certificateOf(r request, a certificates.Authority, node string, externalEtcd bool) *certificates.Certificate {
	for _, c := range certificates.Of(false, externalEtcd) {
		var organization []string
		if c.Organization != "" {
			organization = []string{c.Organization}
		}
		if c.Authority == a && c.Subject(node) == r.parsed.Subject.CommonName && slices.Equal(organization, r.parsed.Subject.Organization) && r.usesOf(c) {
			return &c
		}
	}
	return nil
}

// usesOf reports whether the requested key usages are exactly those of a certificate.
func (r request) usesOf(c certificates.Certificate) bool {
	wanted := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
	if c.Server {
		wanted = append(wanted, certificatesv1.UsageServerAuth)
	}
	if c.Client {
		wanted = append(wanted, certificatesv1.UsageClientAuth)
	}
	is := slices.Clone(r.usages)
	slices.Sort(is)
	slices.Sort(wanted)
	return slices.Equal(wanted, slices.Compact(is))
}

// decideControlPlane decides a request for a certificate of a control plane machine. A machine may
// request them with the credential that it joins with until it is a node, and later as that node. The
// certificate may contain the machine's own names and addresses and those of the API servers.
func decideControlPlane(r request, a certificates.Authority, from joiner, of *controlPlane, net network, machines []*clusterv1.Machine) csrDecision {
	m, asNode := from.machine, strings.HasPrefix(r.username, nodeUserPrefix)
	switch {
	case m == nil:
		return denied("The credential belongs to no Machine of this cluster")
	case !util.IsControlPlaneMachine(m):
		return denied("Machine %s is no control plane machine", m.Name)
	case r.parsed == nil:
		return denied("The request is not a PKCS #10 certificate request of at most %d KiB", maxRequest>>10)
	case !asNode && (m.Status.NodeRef.IsDefined() || from.node):
		return denied("Machine %s has joined already, and its credential is valid only once", m.Name)
	}
	c := certificateOf(r, a, nodeNameOf(m), of.externalEtcd)
	if c == nil {
		return denied("A control plane machine has no such certificate of the CA %s for %s", a, r.parsed.Subject.CommonName)
	}
	dns, ips, others := r.names()
	names := of.names
	names.Node = nodeNameOf(m)
	allowedDNS, allowedIPs := names.Of(*c)
	for _, name := range dns {
		if !slices.Contains(allowedDNS, name) {
			return denied("%q is not a name of Machine %s or of the API server", name, m.Name)
		}
	}
	own := slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return slices.Contains(allowedIPs, ip) })
	switch {
	case others || len(allowedDNS) == 0 && len(dns)+len(ips) > 0:
		return denied("The certificate %s must not have these names", c.Name)
	case !m.DeletionTimestamp.IsZero():
		return pending("Machine %s is being deleted", m.Name)
	}
	decision := decideAddresses(own, m, net, machines)
	if decision.action == approve {
		decision.reason = fmt.Sprintf("Certificate %s of control plane machine %s", c.Name, m.Name)
	}
	return decision
}
