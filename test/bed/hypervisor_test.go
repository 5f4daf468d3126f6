package bed

import (
	"context"
	"os"
	"testing"

	. "github.com/onsi/gomega"
)

// TestHypervisorsHaveOneFace performs the operations of suites on each
// hypervisor, without the providers. VMs need no hosts for that.
func TestHypervisorsHaveOneFace(t *testing.T) {
	g := NewWithT(t)
	const name = "bed-test-h"
	// A run that was killed left it behind.
	g.Expect(Down(t.Context(), name)).To(Succeed())
	_, err := Start(t.Context(), Options{
		Name: name, Hypervisors: Hypervisors(), Providers: []string{}, Bodiless: true, Log: os.Stderr,
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(Down(context.WithoutCancel(t.Context()), name)).To(Succeed()) })
	opened, err := Open(t.Context(), name)
	g.Expect(err).NotTo(HaveOccurred())

	for _, hypervisor := range Hypervisors() {
		t.Run(hypervisor, func(t *testing.T) {
			g := NewWithT(t)
			ctx := t.Context()
			h, err := opened.Hypervisor(hypervisor)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(h.Credentials()).To(And(HaveKeyWithValue("username", Not(BeEmpty())), HaveKeyWithValue("password", Not(BeEmpty()))))

			g.Expect(h.Clone(ctx, "foreign")).To(Succeed())
			g.Expect(h.VMs(ctx)).To(ContainElement("foreign"))
			g.Expect(h.PowerOff(ctx, "missing")).To(MatchError(ContainSubstring("missing")))
			g.Expect(h.Destroy(ctx, "foreign")).To(Succeed())
			g.Expect(h.VMs(ctx)).NotTo(ContainElement("foreign"))

			g.Expect(h.SetFull(ctx, true)).To(Succeed())
			g.Expect(h.Clone(ctx, "foreign")).To(MatchError(ContainSubstring(h.Facts().Storage)))
			g.Expect(h.SetFull(ctx, false)).To(Succeed())

			from := h.Facts().Template
			g.Expect(h.RenameTemplate(ctx, from, "renamed")).To(Succeed())
			g.Expect(h.Clone(ctx, "foreign")).NotTo(Succeed())
			g.Expect(h.RenameTemplate(ctx, "renamed", from)).To(Succeed())
			g.Expect(h.Clone(ctx, "foreign")).To(Succeed())

			g.Expect(h.ResetRequests(ctx)).To(Succeed())
			g.Expect(h.Requests(ctx)).To(BeEmpty())
		})
	}
	_, err = opened.Hypervisor("hyper-v")
	g.Expect(err).To(MatchError(ContainSubstring("no hypervisor")))
	_, err = Start(t.Context(), Options{Name: "bed-test-i", Hypervisors: []string{"hyper-v"}})
	g.Expect(err).To(MatchError(ContainSubstring("no hypervisor")))
}
