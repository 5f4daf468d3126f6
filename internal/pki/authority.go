package pki

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Authority signs for tenant clusters.
type Authority interface {
	// Ensure makes the cluster's certificate authorities and keys unless they
	// exist, owned by owner. What a user put there before is used as it is
	// and is not owned; see Adopt for what was made here. An unusable certificate or key is an
	// InvalidCertificateError.
	Ensure(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, validity time.Duration) error

	// Check reports whether all of the cluster's certificates are there and can
	// be used, and makes none. It owns them as Ensure does. ErrNotFound if one
	// is gone; ErrExternalClient if that of a client of external etcd is all
	// that is amiss.
	Check(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference) error

	// ClusterCA returns the certificates, in PEM, that the tenant's API
	// server and its clients are verified against. ErrNotFound until Ensure
	// was through.
	ClusterCA(ctx context.Context, cluster client.ObjectKey) ([]byte, error)

	// Client issues a client certificate for the tenant's API server.
	Client(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (KeyPair, error)

	// EtcdClient issues a client certificate for the tenant's etcd, and
	// returns the certificates its servers are verified against.
	EtcdClient(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (pair KeyPair, ca []byte, err error)

	// ControlPlaneFiles returns what the control plane machine of a node must
	// find under /etc/kubernetes/pki before kubeadm runs. The node's name is for
	// an authority that keeps its keys to itself: it hands out certificates
	// alone, and what this node, and no other, fetches its own with.
	ControlPlaneFiles(ctx context.Context, cluster client.ObjectKey, node string) ([]File, error)
}

// ClientRequest says whom a client certificate is for.
type ClientRequest struct {
	CommonName    string
	Organizations []string
	// TTL is how long the certificate is good for.
	TTL time.Duration
}

// KeyPair is a certificate and its key, both in PEM.
type KeyPair struct {
	Certificate []byte
	Key         []byte
}

// File is a file on a control plane machine.
type File struct {
	// Path is absolute.
	Path string
	// Permissions are octal, for instance "0600".
	Permissions string
	Content     []byte
}
