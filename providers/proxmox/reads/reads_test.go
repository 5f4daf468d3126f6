package reads

import (
	"context"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
)

// Many requests that a node does not answer do not delay those of another node.
func TestReadsOfANodeThatHangs(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	sender := NewSender(group)
	var hanging, answered atomic.Int32
	due := ByNode{}
	for range 3 * Parallel {
		due["a"] = append(due["a"], func(ctx context.Context) error {
			hanging.Add(1)
			<-ctx.Done()
			return nil
		})
	}
	due["b"] = append(due["b"], func(context.Context) error {
		answered.Add(1)
		return nil
	})
	g.Eventually(func() int32 {
		sender.Send(ctx, due)
		return answered.Load()
	}).Should(BeNumerically(">", 3))
	g.Eventually(hanging.Load).Should(BeEquivalentTo(Parallel))
	stop()
	g.Expect(group.Wait()).To(Succeed())
}
