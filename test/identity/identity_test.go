package identity

import (
	"crypto/x509"
	"testing"

	. "github.com/onsi/gomega"
)

func TestLoad(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	first, err := Load(dir, []string{"vcenter.test", "192.0.2.1"})
	g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(first.CA)).To(BeTrue())
	for _, name := range []string{"vcenter.test", "192.0.2.1"} {
		_, err = first.Certificate.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		g.Expect(err).NotTo(HaveOccurred())
	}

	again, err := Load(dir, []string{"192.0.2.1"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Thumbprint()).To(Equal(first.Thumbprint()), "it is kept")

	other, err := Load(dir, []string{"192.0.2.2"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other.Thumbprint()).NotTo(Equal(first.Thumbprint()), "a certificate that lacks a name is replaced")
}
