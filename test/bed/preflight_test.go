package bed

import (
	"math"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestEnoughDisk(t *testing.T) {
	g := NewWithT(t)
	notThere := filepath.Join(t.TempDir(), "a", "b")
	g.Expect(enoughDisk(notThere, 0)).To(Succeed())
	g.Expect(enoughDisk(notThere, math.MaxUint64)).To(MatchError(ContainSubstring("GiB of free disk space")))
}
