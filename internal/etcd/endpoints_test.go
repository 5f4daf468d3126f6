package etcd

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

// A tenant names the endpoints of external etcd.
func TestDeniedEndpointIsNotDialed(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	accepted := make(chan struct{}, 8)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- struct{}{}
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	endpoints.Set(endpoints.Policy{Denied: endpoints.Defaults()})
	t.Cleanup(func() { endpoints.Set(endpoints.Policy{}) })
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		start := time.Now()
		endpoint := "https://" + host + ":" + port
		g.Expect(EndpointProblems(t.Context(), &tls.Config{MinVersion: tls.VersionTLS12}, []string{endpoint})).
			To(ConsistOf("Endpoint " + endpoint + " cannot be used: " + endpoints.ErrDenied.Error()))
		g.Expect(time.Since(start)).To(BeNumerically("<", callTimeout/2), "a denied address is not tried again")
	}
	g.Expect(accepted).To(BeEmpty())
}
