package keys

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// kubeletDir has the keys and certificates of the kubelet, which renews them.
const kubeletDir = "/var/lib/kubelet/pki"

const (
	// kubeletServer is the name of the kubelet's serving certificate.
	kubeletServer = "kubelet-server"
	// kubeletSigner signs the client certificates of kubelets.
	kubeletSigner = "kubernetes.io/kube-apiserver-client-kubelet"
)

// kubeletFile has the certificate that the kubelet uses, and its key.
func kubeletFile(name string) string { return path.Join(kubeletDir, name+"-current.pem") }

// writeKubelet replaces a certificate of the kubelet and its key as the kubelet does: the
// kubelet replaces only a link.
func writeKubelet(m *machine.Machine, name string, certificate, key []byte) error {
	file := name + "-" + time.Now().Format("2006-01-02-15-04-05") + ".pem"
	if err := m.Write(path.Join(kubeletDir, file), string(certificate)+string(key), 0o600); err != nil {
		return err
	}
	return m.Link(kubeletFile(name), file)
}

// KubeletDue returns the names of the kubelet's certificates that the CA that signs has not
// signed. A kubelet that signs its serving certificate itself has no link to it.
func KubeletDue(m *machine.Machine, bundle Bundle) ([]string, error) {
	var due []string
	for _, name := range []string{certificates.KubeletClient, kubeletServer} {
		if name == kubeletServer && !m.Exists(kubeletFile(name)) {
			continue
		}
		content, err := m.Load(kubeletFile(name))
		if err != nil {
			return nil, err
		}
		chain, err := certutil.ParseCertsPEM([]byte(content))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", kubeletFile(name), err)
		}
		if bundle.verify(chain[0], time.Now()) != nil {
			due = append(due, name)
		}
	}
	return due, nil
}

// RenewKubelet replaces certificates of the kubelet, which reads them when it starts. It
// requests a serving certificate itself if it has none.
func RenewKubelet(ctx context.Context, m *machine.Machine, node string, due []string, bundle Bundle, signer Signer) error {
	if slices.Contains(due, certificates.KubeletClient) {
		if err := renewKubeletClient(ctx, m, node, bundle, signer); err != nil {
			return err
		}
	}
	if !slices.Contains(due, kubeletServer) {
		return nil
	}
	return m.Remove(kubeletFile(kubeletServer))
}

func renewKubeletClient(ctx context.Context, m *machine.Machine, node string, bundle Bundle, signer Signer) error {
	all := certificates.Of(true, true)
	c := all[slices.IndexFunc(all, func(c certificates.Certificate) bool { return c.Name == certificates.KubeletClient })]
	r := &Request{Certificate: c, CommonName: c.Subject(node), bundle: bundle, signer: kubeletSigner}
	signed, err := sign(ctx, m, []*Request{r}, func() (Signer, error) { return signer, nil })
	if err != nil {
		return err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(r.key)
	if err != nil {
		return fmt.Errorf("encoding key: %w", err)
	}
	return writeKubelet(m, c.Name, signed[0], key)
}
