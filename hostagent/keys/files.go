package keys

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	kubernetes = "/etc/kubernetes"
	// clockSkew is how much longer than requested a certificate may be valid.
	clockSkew = 10 * time.Minute
)

// certificateFile and keyFile return the files of certificate and key; the file of the
// key is empty if both are in one file.
func certificateFile(c certificates.Certificate) string {
	switch {
	case c.Name == certificates.KubeletClient:
		return kubeletFile(certificates.KubeletClient)
	case c.Kubeconfig != "":
		return path.Join(kubernetes, c.Kubeconfig)
	}
	return path.Join(nodeconfig.KeysDir, c.File+".crt")
}

func keyFile(c certificates.Certificate) string {
	if c.File == "" {
		return ""
	}
	return path.Join(nodeconfig.KeysDir, c.File+".key")
}

// pair is a certificate with its key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// load reads the certificate and its key.
func load(m *machine.Machine, c certificates.Certificate) (*pair, error) {
	if c.Kubeconfig != "" && !m.Exists(path.Join(kubernetes, c.Kubeconfig)) {
		return nil, errors.New("the kubeconfig does not exist")
	}
	content, err := m.Load(certificateFile(c))
	if err != nil {
		return nil, err
	}
	certificate, key := []byte(content), []byte(content)
	switch {
	case keyFile(c) != "":
		text, err := m.Load(keyFile(c))
		if err != nil {
			return nil, err
		}
		key = []byte(text)
	case c.Name != certificates.KubeletClient:
		config, err := clientcmd.Load([]byte(content))
		if err != nil {
			return nil, fmt.Errorf("reading kubeconfig: %w", err)
		}
		for _, user := range config.AuthInfos {
			certificate, key = user.ClientCertificateData, user.ClientKeyData
		}
	}
	chain, err := certutil.ParseCertsPEM(certificate)
	if err != nil {
		return nil, fmt.Errorf("reading certificate: %w", err)
	}
	signer, err := parseKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{certificate: chain[0], key: signer}, nil
}

func loadKey(m *machine.Machine, file string) (crypto.Signer, error) {
	content, err := m.Load(file)
	if err != nil {
		return nil, err
	}
	return parseKey([]byte(content))
}

func parseKey(content []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, fmt.Errorf("reading key: %w", err)
	}
	signer, is := key.(crypto.Signer)
	if !is {
		return nil, errors.New("reading key: it cannot sign")
	}
	return signer, nil
}

// write writes a certificate. A key that has no file of its own is written with it.
func (r *Request) write(m *machine.Machine, want *nodeconfig.Certificates, node Node, certificate []byte) error {
	if r.Certificate.Kubeconfig == "" {
		return m.Write(certificateFile(r.Certificate), string(certificate), 0o644)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(r.key)
	if err != nil {
		return fmt.Errorf("encoding key: %w", err)
	}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	if r.Certificate.Name == certificates.KubeletClient {
		if err := writeKubelet(m, certificates.KubeletClient, certificate, key); err != nil {
			return err
		}
		file := kubeletFile(certificates.KubeletClient)
		user = &clientcmdapi.AuthInfo{ClientCertificate: file, ClientKey: file}
	}
	server := want.Endpoint
	if r.Certificate.Connects == certificates.Local {
		server = "https://" + net.JoinHostPort(node.Addresses[0].String(), strconv.Itoa(want.Port))
	}
	ca, err := m.Load(path.Join(nodeconfig.KeysDir, r.Certificate.Authority.File()))
	if err != nil {
		return err
	}
	// The names are those of kubeadm.
	const cluster = "kubernetes"
	context := r.CommonName + "@" + cluster
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: []byte(ca)}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{r.CommonName: user},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: r.CommonName}},
		CurrentContext: context,
	})
	if err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return m.Write(path.Join(kubernetes, r.Certificate.Kubeconfig), string(content), 0o600)
}

// check returns how a certificate differs from the request: the machine uses only the
// certificate that it has requested.
func (r *Request) check(is *x509.Certificate, key crypto.PublicKey, now time.Time) error {
	if err := r.bundle.verify(is, now); err != nil {
		return err
	}
	wanted := certificates.Wanted{
		CommonName: r.CommonName, Organizations: r.organizations(), DNSNames: r.DNSNames, IPs: r.IPs,
		Client: r.Certificate.Client, Server: r.Certificate.Server,
	}
	if r.Validity > 0 {
		wanted.Until = now.Add(r.Validity + clockSkew)
	}
	return wanted.Check(is, key)
}

// organizations returns the groups of the subject.
func (r *Request) organizations() []string {
	if r.Certificate.Organization == "" {
		return nil
	}
	return []string{r.Certificate.Organization}
}
