package pki

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Authority signs certificates for workload clusters.
type Authority interface {
	// Ensure creates the CAs and keys of a cluster if they do not exist, owned
	// by owner. Secrets that a user has created are used unchanged and are not
	// owned; Adopt handles Secrets that were created here. An unusable
	// certificate or key is an InvalidCertificateError.
	Ensure(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference, validity time.Duration) error

	// Check checks that all of the cluster's certificates exist and are usable,
	// and creates none. It sets owners as Ensure does. It returns ErrNotFound
	// if one is missing; ErrExternalClient if only the client certificate for
	// external etcd has a problem.
	Check(ctx context.Context, cluster client.ObjectKey, owner metav1.OwnerReference) error

	// ClusterCA returns the certificates, in PEM, that verify the workload
	// cluster's API server and its clients. It returns ErrNotFound until Ensure
	// has succeeded.
	ClusterCA(ctx context.Context, cluster client.ObjectKey) ([]byte, error)

	// Client issues a client certificate for the workload cluster's API server.
	Client(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (KeyPair, error)

	// EtcdClient issues a client certificate for the workload cluster's etcd,
	// and returns the certificates that verify its servers.
	EtcdClient(ctx context.Context, cluster client.ObjectKey, request ClientRequest) (pair KeyPair, ca []byte, err error)

	// ControlPlaneFiles returns the files that a control plane machine needs under
	// /etc/kubernetes/pki before kubeadm runs: with the keys of the CAs, or without
	// them if a Signer signs for the nodes.
	ControlPlaneFiles(ctx context.Context, cluster client.ObjectKey) ([]File, error)
}

// Signer signs for the nodes of workload clusters whose CAs have their keys elsewhere.
type Signer interface {
	// Signs reports whether Sign signs the certificate requests of the cluster's
	// nodes. Otherwise kube-controller-manager and kubeadm do.
	Signs(ctx context.Context, cluster client.ObjectKey) (bool, error)

	// Sign signs a certificate request that was approved.
	Sign(ctx context.Context, cluster client.ObjectKey, request SignRequest) ([]byte, error)

	// NodeLogin returns the credentials with which the machine that initializes the
	// cluster has the certificates of its first boot signed. They can be used once,
	// within ttl. It returns nil if kubeadm makes the certificates.
	NodeLogin(ctx context.Context, cluster client.ObjectKey, ttl time.Duration) (*NodeLogin, error)
}

// ClientRequest describes the subject of a client certificate.
type ClientRequest struct {
	CommonName    string
	Organizations []string
	// TTL is the validity of the certificate.
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
