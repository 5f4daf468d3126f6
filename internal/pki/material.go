package pki

import (
	"crypto/x509"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
)

// material is one Secret of the contract.
type material struct {
	purpose secret.Purpose
	// commonName is the subject of a generated CA; a key pair without a
	// certificate has none.
	commonName string
	// certFile and keyFile are kubeadm's paths, below pkiDir.
	certFile, keyFile string
}

// materials are the Secrets of the contract, with the subjects that kubeadm
// uses.
var materials = []material{
	{purpose: secret.ClusterCA, commonName: "kubernetes", certFile: "ca.crt", keyFile: "ca.key"},
	{purpose: secret.EtcdCA, commonName: "etcd-ca", certFile: "etcd/ca.crt", keyFile: "etcd/ca.key"},
	{purpose: secret.FrontProxyCA, commonName: "front-proxy-ca", certFile: "front-proxy-ca.crt", keyFile: "front-proxy-ca.key"},
	{purpose: secret.ServiceAccount, certFile: "sa.pub", keyFile: "sa.key"},
}

// purposes are the Secrets of CAs.
var purposes = map[certificates.Authority]material{certificates.Kubernetes: materials[0], certificates.Etcd: materials[1], certificates.FrontProxy: materials[2]}

// isCA distinguishes a CA from a plain key pair.
func (m material) isCA() bool { return m.commonName != "" }

// loaded is the checked content of a Secret.
type loaded struct {
	// secret is the Secret that was read; nil for external etcd.
	secret *corev1.Secret
	pair   KeyPair
	// client is the client certificate for external etcd. The key is missing
	// then.
	client *KeyPair
	// certificate is the signing certificate, nil for a plain key pair.
	certificate *x509.Certificate
	// key is its key; nil for external etcd, and if vault has it.
	key   signer
	vault *StarVault
}
