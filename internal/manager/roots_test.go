package manager

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// Without CAs of the system, as in an image, the public CAs are used. A process
// loads them once, so the test starts a new process.
func TestRootsWithoutASystem(t *testing.T) {
	g := NewWithT(t)
	if os.Getenv("NOVA_NO_SYSTEM") != "" {
		roots, err := x509.SystemCertPool()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(roots.Equal(x509.NewCertPool())).To(BeFalse())
		return
	}
	none := filepath.Join(t.TempDir(), "none")
	bare := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	bare.Env = append(os.Environ(), "NOVA_NO_SYSTEM=1", "SSL_CERT_FILE="+none, "SSL_CERT_DIR="+none)
	output, err := bare.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", output)
}
