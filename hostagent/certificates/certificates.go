package certificates

import (
	"net/netip"
	"slices"
)

// Authority is a CA of a cluster.
type Authority string

// The CAs of a cluster.
const (
	Kubernetes Authority = "kubernetes"
	Etcd       Authority = "etcd"
	FrontProxy Authority = "front-proxy"
)

// Authorities are all CAs of a cluster.
func Authorities() []Authority { return []Authority{Kubernetes, Etcd, FrontProxy} }

// signerDomain is the domain of the signers of CertificateSigningRequests.
const signerDomain = "nova-platform.io/"

// Signer is the signer of CertificateSigningRequests for certificates of the CA.
func (a Authority) Signer() string { return signerDomain + string(a) }

// AuthorityOf returns the CA of a signer; empty if the signer is another one.
func AuthorityOf(signer string) Authority {
	for _, a := range Authorities() {
		if a.Signer() == signer {
			return a
		}
	}
	return ""
}

// File is the file of the CA's certificate below /etc/kubernetes/pki.
func (a Authority) File() string {
	switch a {
	case Etcd:
		return "etcd/ca.crt"
	case FrontProxy:
		return "front-proxy-ca.crt"
	case Kubernetes:
	}
	return "ca.crt"
}

// Server is the API server that a kubeconfig names.
type Server string

const (
	// Endpoint is the endpoint of the control plane.
	Endpoint Server = "Endpoint"
	// Local is the API server of the machine.
	Local Server = "Local"
)

// names are the names and addresses that a server certificate has.
type names string

const (
	noNames        names = ""
	etcdNames      names = "etcd"
	apiServerNames names = "apiserver"
)

// Certificate is a certificate of a control plane machine.
type Certificate struct {
	// Name is its name, and the name of the role of a vault that signs it.
	Name string
	// Authority is the CA that signs it.
	Authority Authority
	// CommonName is the subject. If not set, it is the name of the node, after
	// the prefix.
	CommonName, Prefix string
	// Organization is the group of the subject; empty if there is none.
	Organization string
	// Client and Server are the uses of the key.
	Client, Server bool
	// File is the path of certificate and key below /etc/kubernetes/pki, without
	// .crt and .key. Empty for a kubeconfig.
	File string
	// Kubeconfig is the file below /etc/kubernetes that contains certificate and
	// key, and Connects is the API server in it.
	Kubeconfig string
	Connects   Server
	// First is true for certificates that only the machine that runs kubeadm init
	// needs.
	First bool

	names names
}

// APIServer is the name of the certificate of the API server.
const APIServer = "apiserver"

// KubeletClient is the name of the certificate of the kubelet. A kubelet that joins
// requests it itself.
const KubeletClient = "kubelet-client"

// all are the certificates of the machine that runs kubeadm init.
var all = []Certificate{
	{Name: APIServer, Authority: Kubernetes, CommonName: "kube-apiserver", Server: true, File: "apiserver", names: apiServerNames},
	{Name: "apiserver-kubelet-client", Authority: Kubernetes, CommonName: "kube-apiserver-kubelet-client", Organization: "kubeadm:cluster-admins", Client: true, File: "apiserver-kubelet-client"},
	{Name: "front-proxy-client", Authority: FrontProxy, CommonName: "front-proxy-client", Client: true, File: "front-proxy-client"},
	{Name: "etcd-server", Authority: Etcd, Server: true, Client: true, File: "etcd/server", names: etcdNames},
	{Name: "etcd-peer", Authority: Etcd, Server: true, Client: true, File: "etcd/peer", names: etcdNames},
	{Name: "etcd-healthcheck-client", Authority: Etcd, CommonName: "kube-etcd-healthcheck-client", Client: true, File: "etcd/healthcheck-client"},
	{Name: "apiserver-etcd-client", Authority: Etcd, CommonName: "kube-apiserver-etcd-client", Client: true, File: "apiserver-etcd-client"},
	{Name: "admin", Authority: Kubernetes, CommonName: "kubernetes-admin", Organization: "kubeadm:cluster-admins", Client: true, Kubeconfig: "admin.conf", Connects: Endpoint},
	{Name: "super-admin", Authority: Kubernetes, CommonName: "kubernetes-super-admin", Organization: "system:masters", Client: true, Kubeconfig: "super-admin.conf", Connects: Endpoint, First: true},
	{Name: "controller-manager", Authority: Kubernetes, CommonName: "system:kube-controller-manager", Client: true, Kubeconfig: "controller-manager.conf", Connects: Local},
	{Name: "scheduler", Authority: Kubernetes, CommonName: "system:kube-scheduler", Client: true, Kubeconfig: "scheduler.conf", Connects: Local},
	{Name: KubeletClient, Authority: Kubernetes, Prefix: "system:node:", Organization: "system:nodes", Client: true, Kubeconfig: "kubelet.conf", Connects: Endpoint, First: true},
}

// Of returns the certificates of a machine. One with external etcd has none of etcd:
// its client certificate is the user's.
func Of(first, externalEtcd bool) []Certificate {
	return slices.DeleteFunc(slices.Clone(all), func(c Certificate) bool {
		return c.First && !first || c.Authority == Etcd && externalEtcd
	})
}

// Subject returns the common name of the certificate of a node.
func (c Certificate) Subject(node string) string {
	if c.CommonName != "" {
		return c.CommonName
	}
	return c.Prefix + node
}

// Names are the names and addresses of a control plane machine.
type Names struct {
	// Node is the name of the node, and Addresses are its own addresses.
	Node      string
	Addresses []netip.Addr
	// DNSNames and IPs are the other names and addresses of the API server.
	DNSNames []string
	IPs      []netip.Addr
}

// Of returns the names and addresses that a certificate has.
func (n *Names) Of(c Certificate) (dnsNames []string, ips []netip.Addr) {
	switch c.names {
	case noNames:
		return nil, nil
	case etcdNames:
		dnsNames = []string{n.Node, "localhost"}
		ips = slices.Concat(n.Addresses, []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()})
	case apiServerNames:
		dnsNames = slices.Concat([]string{n.Node, "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, n.DNSNames)
		ips = slices.Concat(n.Addresses, n.IPs)
	}
	slices.Sort(dnsNames)
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(dnsNames), slices.Compact(ips)
}
