package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// evil is a server of an attacker. It notes each connection and each request.
type evil struct {
	// Address is host:port, and URL the same with its scheme.
	Address, URL string
	// CA is the certificate that its own is signed by, in PEM.
	CA []byte

	mu          sync.Mutex
	connections []string
	requests    []string
}

// listen starts a server that speaks TLS and has a certificate of its own. It
// answers by answer, or with an empty object.
func listen(ctx context.Context, answer http.HandlerFunc) *evil {
	GinkgoHelper()
	e := &evil{}
	e.serve(ctx, host.Gateway+":0", selfSigned(e, host.Gateway), answer)
	return e
}

// selfSigned makes a certificate for an address, and the server's CA of it.
func selfSigned(e *evil, address string) tls.Certificate {
	GinkgoHelper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(address, []net.IP{net.ParseIP(address)}, []string{"localhost"})
	Expect(err).NotTo(HaveOccurred())
	e.CA = certificate
	pair, err := tls.X509KeyPair(certificate, key)
	Expect(err).NotTo(HaveOccurred())
	return pair
}

func (e *evil) serve(ctx context.Context, address string, pair tls.Certificate, answer http.HandlerFunc) {
	GinkgoHelper()
	listener, err := b.Listen(ctx, "tcp", address)
	Expect(err).NotTo(HaveOccurred())
	e.Address = listener.Addr().String()
	e.URL = "https://" + e.Address
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}"))
		}
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			dump, err := httputil.DumpRequest(r, false)
			e.note(&e.requests, fmt.Sprintf("%s %v", dump, err))
			answer(w, r)
		}),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateNew {
				e.note(&e.connections, conn.RemoteAddr().String())
			}
		},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	DeferCleanup(server.Close)
}

func (e *evil) note(list *[]string, line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*list = append(*list, line)
}

// Connections are those that were opened.
func (e *evil) Connections() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.connections...)
}

// Requests are those that were sent, with their headers.
func (e *evil) Requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.requests...)
}
