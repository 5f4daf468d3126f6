package nodeconfig

import "time"

// Certificates describes the certificates of a control plane machine. The machine makes
// the keys, and has the certificates signed.
type Certificates struct {
	// ExternalEtcd is true if the machine has no member of etcd.
	ExternalEtcd bool `json:"externalEtcd,omitempty"`
	// Endpoint is the URL of the API server, and Port the port of the machine's own
	// one, for kubeconfigs.
	Endpoint string `json:"endpoint"`
	Port     int    `json:"port"`
	// DNSNames and IPs are the names and addresses of the API server, without those of
	// the machine.
	DNSNames []string `json:"dnsNames,omitempty"`
	IPs      []string `json:"ips,omitempty"`
	// ValiditySeconds is the validity of the certificates, in seconds.
	ValiditySeconds int64 `json:"validitySeconds"`
}

// Validity is the validity of the certificates.
func (c *Certificates) Validity() time.Duration {
	return time.Duration(c.ValiditySeconds) * time.Second
}

// Vault is a server that signs certificates, with credentials that are valid once.
type Vault struct {
	// Server is its URL, Namespace its namespace, and CA verifies it, in PEM.
	Server    string `json:"server"`
	Namespace string `json:"namespace,omitempty"`
	CA        string `json:"ca,omitempty"`
	// AuthPath is the path of the auth method, and RoleID the ID of the role.
	AuthPath string `json:"authPath"`
	RoleID   string `json:"roleID"`
	// WrappedSecretID is the token that unwraps the secret ID once.
	WrappedSecretID string `json:"wrappedSecretID"`
	// MountPath is the path of the PKI engines of the cluster.
	MountPath string `json:"mountPath"`
}
