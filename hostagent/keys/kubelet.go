package keys

import (
	"path"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// kubeletDir has the keys and certificates of the kubelet, which renews them.
const kubeletDir = "/var/lib/kubelet/pki"

// kubeletClient is the name of the kubelet's client certificate.
const kubeletClient = "kubelet-client"

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
