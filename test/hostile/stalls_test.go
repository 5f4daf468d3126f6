package hostile

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

var _ = Describe("API servers of a tenant", func() {
	It("accepts connections and never answers, in 50 clusters [F26]", func(ctx context.Context) {
		const namespace = "red-unresponsive"
		user := tenantUser(ctx, namespace)
		address, opened := unresponsive(ctx)
		withdraw(namespace)
		atOnce(50, func(i int) { bareCluster(ctx, user, namespace, fmt.Sprintf("unresponsive-%02d", i), address) })
		Eventually(opened).Should(BeNumerically(">=", 50))
		progresses(ctx)
		joins(ctx)
	})

	// They respond to the probe late, and let every other request wait.
	It("answers each question as late as it may, in 50 clusters [F26]", func(ctx context.Context) {
		const namespace = "red-slow"
		user := tenantUser(ctx, namespace)
		server := listen(ctx, func(_ http.ResponseWriter, r *http.Request) {
			var late <-chan time.Time
			if r.URL.Path == "/" {
				late = time.After(probeTime)
			}
			select {
			case <-late:
			case <-r.Context().Done():
			}
		})
		withdraw(namespace)
		atOnce(50, func(i int) {
			name := fmt.Sprintf("slow-%02d", i)
			Expect(b.Client.Create(ctx, kubeconfigSecret(namespace, name, kubeconfigOf(server)))).To(Succeed())
			bareCluster(ctx, user, namespace, name, server.Address)
		})
		Eventually(func() int { return len(server.Connections()) }).Should(BeNumerically(">=", 50))
		connects(ctx, namespace)
	})
})

const (
	// probeTime is less than the 5 s that the cluster cache waits for an answer.
	probeTime = 4 * time.Second
	// connectTimeout is far below the time that ten workers take for 50 clusters
	// of which each keeps them for 14 s.
	connectTimeout = 30 * time.Second
)

// connects expects that all managers connect to a cluster that is new.
func connects(ctx context.Context, beside string) {
	GinkgoHelper()
	By("connecting to another cluster")
	namespace := beside + "-new"
	withdraw(namespace)
	server := apiServer(ctx, namespace, "new", nil)
	for _, manager := range []string{"nova-bootstrap", "nova-control-plane", bed.AddonProvider} {
		Eventually(server.Requests).WithTimeout(connectTimeout).Should(ContainElement(ContainSubstring("User-Agent: "+manager)), manager)
	}
}

// unresponsive accepts connections and never answers. It returns its address, and the
// number of connections so far.
func unresponsive(ctx context.Context) (address string, opened func() int) {
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
