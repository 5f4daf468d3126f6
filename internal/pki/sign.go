package pki

import (
	"net/netip"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// SignRequest is a request of a node or a manager that was approved.
type SignRequest struct {
	// Role is the role of the vault, and Authority the CA.
	Role      string
	Authority certificates.Authority
	// Request is the PKCS #10 request in PEM. Only its key counts.
	Request []byte
	// CommonName, Organizations, DNSNames and IPs are the names in the certificate.
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []netip.Addr
	// Client and Server are its uses.
	Client, Server bool
	// TTL is its validity. A CA that ends earlier shortens it.
	TTL time.Duration
}

// NodeLogin is how a machine has the certificates of its first boot signed.
type NodeLogin struct {
	// Server is the URL of the vault, Namespace its namespace, CABundle its CAs in PEM.
	Server, Namespace string
	CABundle          []byte
	// AuthPath is the path of the auth method, RoleID the ID of its role, and
	// WrappedSecretID the token that unwraps the secret ID once.
	AuthPath, RoleID, WrappedSecretID string
	// MountPath is the path of the engines of the cluster.
	MountPath string
}
