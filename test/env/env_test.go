package env

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestStart(t *testing.T) {
	g := NewWithT(t)
	e, err := Start(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.Stop()).To(Succeed())
}
