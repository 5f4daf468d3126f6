package agenttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// Server is an API server with a certificate for the name kubernetes and for the
// local address.
type Server struct {
	*httptest.Server
	ca []byte
	// serving, if set, replaces the certificate.
	serving atomic.Pointer[tls.Certificate]
}

// NewServer starts an API server.
func NewServer(t *testing.T, handler http.HandlerFunc) *Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"kubernetes"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, //nolint:mnd // the local address
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Server: httptest.NewUnstartedServer(handler), ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})}
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if c := s.serving.Load(); c != nil {
			return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*c}}, nil
		}
		return nil, nil //nolint:nilnil // the first one
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// SignedBy gives the server a certificate that a CA has signed, with others that it sends.
func (s *Server) SignedBy(t *testing.T, ca *CA, others string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := ca.sign(t, key.Public(), &x509.Certificate{
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"kubernetes"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, //nolint:mnd // the local address
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	c := &tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode([]byte(leaf + others)); block != nil; block, rest = pem.Decode(rest) {
		c.Certificate = append(c.Certificate, block.Bytes)
	}
	s.serving.Store(c)
	s.ca = []byte(ca.PEM())
}

// CA returns the certificate that verifies the server, in PEM.
func (s *Server) CA() string { return string(s.ca) }

// Port returns the server's port.
func (s *Server) Port() int {
	return int(netip.MustParseAddrPort(s.Listener.Addr().String()).Port())
}

// Kubeconfig returns a kubeconfig for the server with a token, as JSON.
func (s *Server) Kubeconfig() string {
	content, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": s.URL, "certificate-authority-data": s.ca}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "t0ken"}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		panic(err)
	}
	return string(content)
}

// Respond writes an object, or the failure with this reason if its kind is
// Status.
func Respond(w http.ResponseWriter, code int, object map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) //nolint:errchkjson // the test chooses the object
}

// Fail writes a failure of an API server.
func Fail(w http.ResponseWriter, code int, reason string) {
	Respond(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
}
