package bed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// The ports of the management cluster inside the bed's namespace. It listens on
// loopback only, so that no host of a tenant can lean on it.
const (
	managementPort = 6443
	etcdPort       = 2379
	etcdPeerPort   = 2380
	// controllersPort is that of kube-controller-manager.
	controllersPort = 10257
)

// managementServer is the URL of the management cluster.
func (b *Bed) managementServer() string { return "https://" + loopback(b.port(managementPort)) }

// writeManagementPKI writes the certificates, keys and kubeconfigs of the
// management cluster with this URL.
func writeManagementPKI(l layout, server string) (*authority, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	return ca, ca.writePKI(l, server)
}

// writePKI writes the certificates, keys and kubeconfigs of a cluster whose
// certificate authority this is, and which is also reached at these addresses.
func (a *authority) writePKI(l layout, server string, addresses ...net.IP) error {
	serving, err := a.server("kube-apiserver", []string{"localhost", "kubernetes.default.svc"},
		append(addresses, net.IPv4(127, 0, 0, 1), net.ParseIP(host.Gateway), net.IPv4(10, 96, 0, 1))...)
	if err != nil {
		return err
	}
	webhook, err := a.server("webhooks", []string{"localhost"}, net.IPv4(127, 0, 0, 1))
	if err != nil {
		return err
	}
	err = errors.Join(
		serving.write(l.pki("apiserver.crt"), l.pki("apiserver.key")),
		webhook.write(l.path("pki", "webhook", "tls.crt"), l.path("pki", "webhook", "tls.key")),
		os.WriteFile(l.pki("ca.crt"), a.bundle(), 0o644),
		writeServiceAccountKey(l.pki("sa.key")),
	)
	if err != nil {
		return err
	}
	users := map[string][]string{"admin": {"system:masters"}, "system:kube-controller-manager": nil}
	files := map[string]string{"admin": "admin", "system:kube-controller-manager": "kube-controller-manager"}
	for user, groups := range users {
		p, err := a.client(user, groups...)
		if err != nil {
			return err
		}
		config := kubeconfig(server, a.bundle(), &api.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key})
		if err := writeKubeconfig(l.kubeconfig(files[user]), config); err != nil {
			return err
		}
	}
	return nil
}

// writeServiceAccountKey writes the key that signs tokens. The API server
// takes the private key for the public one too.
func writeServiceAccountKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making service account key: %w", err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("making service account key: %w", err)
	}
	if err := os.WriteFile(path, pem, 0o600); err != nil {
		return fmt.Errorf("writing service account key: %w", err)
	}
	return nil
}

// managementProcesses are the programs of the management cluster.
func managementProcesses(l layout, programs map[string]string, port func(int) int) []supervisor.Process {
	etcdServer := "http://" + loopback(port(etcdPort))
	return []supervisor.Process{
		{Name: "etcd", Args: []string{
			programs["etcd"],
			"--data-dir=" + l.path("etcd"),
			"--listen-client-urls=" + etcdServer,
			"--advertise-client-urls=" + etcdServer,
			"--listen-peer-urls=http://" + loopback(port(etcdPeerPort)),
			// The bed is thrown away: a lost write costs nothing, an fsync does.
			"--unsafe-no-fsync",
		}},
		{Name: "kube-apiserver", Args: []string{
			programs["kube-apiserver"],
			"--etcd-servers=" + etcdServer,
			"--bind-address=127.0.0.1",
			"--advertise-address=" + host.Gateway,
			"--secure-port=" + strconv.Itoa(port(managementPort)),
			"--service-cluster-ip-range=10.96.0.0/16",
			"--authorization-mode=Node,RBAC",
			"--client-ca-file=" + l.pki("ca.crt"),
			"--tls-cert-file=" + l.pki("apiserver.crt"),
			"--tls-private-key-file=" + l.pki("apiserver.key"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + l.pki("sa.key"),
			"--service-account-signing-key-file=" + l.pki("sa.key"),
		}},
		{Name: "kube-controller-manager", Args: []string{
			programs["kube-controller-manager"],
			"--kubeconfig=" + l.kubeconfig("kube-controller-manager"),
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(port(controllersPort)),
			"--use-service-account-credentials",
			// Its controllers start one after another, a request each.
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
			"--service-account-private-key-file=" + l.pki("sa.key"),
			"--root-ca-file=" + l.pki("ca.crt"),
			"--leader-elect=false",
		}},
	}
}
