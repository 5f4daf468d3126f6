package nodeconfig

// AuthoritiesLabel is the label of a Node with the ID of the CAs that it trusts.
const AuthoritiesLabel = "nova-platform.io/authorities"

// Authorities are the CAs of a cluster whose CAs were, or are being, rotated. Each is a
// list of certificates in PEM. The first one is that of the CA that signs; others are
// trusted as well, and one of them may be the certificate of the signing CA that the
// other CA has signed.
type Authorities struct {
	// ID identifies all certificates. It is the value of the label.
	ID string `json:"id"`
	// Kubernetes are the certificates of the CA of the API server.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Etcd and FrontProxy are only set on a control plane node, and Etcd only if the
	// node has a member of etcd.
	Etcd       string `json:"etcd,omitempty"`
	FrontProxy string `json:"frontProxy,omitempty"`
}
