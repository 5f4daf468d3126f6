package hostile

import (
	"context"
	"fmt"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

var _ = Describe("API servers of a tenant", func() {
	It("accepts connections and never answers, in 50 clusters [F26]", func(ctx context.Context) {
		const namespace = "red-silent"
		user := tenantUser(ctx, namespace)
		address, opened := silent(ctx)
		withdraw(namespace)
		for i := range 50 {
			bareCluster(ctx, user, namespace, fmt.Sprintf("silent-%02d", i), address)
		}
		Eventually(opened).Should(BeNumerically(">=", 50))
		progresses(ctx)
		joins(ctx)
	})
})

// silent accepts connections and never answers. It returns its address, and the
// number of connections so far.
func silent(ctx context.Context) (address string, opened func() int) {
	GinkgoHelper()
	listener, err := b.Listen(ctx, "tcp", host.Gateway+":0")
	Expect(err).NotTo(HaveOccurred())
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
		}
	}()
	DeferCleanup(func() {
		_ = listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return listener.Addr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(open)
	}
}
