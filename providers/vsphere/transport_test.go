package vsphere

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/soap"
)

// dialed returns how a client fails to read the content of a server that
// answers with handler.
func dialed(t *testing.T, handler http.HandlerFunc) error {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	e := endpoint{server: server.Listener.Addr().String(), tls: trust{thumbprint: thumbprintOf(server)}}
	_, err := e.dial(t.Context(), newLine(e.server, &Options{pace: usually}))
	return err
}

// A redirect would take the body of the request, which may be a login, to
// another server.
func TestRedirectIsRefused(t *testing.T) {
	for _, code := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusFound} {
		g := NewWithT(t)
		var requests atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		t.Cleanup(other.Close)
		err := dialed(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, code) })
		g.Expect(err).To(MatchError(ContainSubstring(http.StatusText(code))))
		g.Expect(requests.Load()).To(BeZero())
	}
}

func TestAnswerIsBounded(t *testing.T) {
	g := NewWithT(t)
	var sent atomic.Int64
	err := dialed(t, func(w http.ResponseWriter, _ *http.Request) {
		const begin = `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>` +
			`<RetrieveServiceContentResponse xmlns="urn:vim25"><returnval><about><name>`
		_, err := io.WriteString(w, begin)
		for part := strings.Repeat("a", 1<<20); err == nil && sent.Load() < 256<<20; {
			var n int
			n, err = io.WriteString(w, part)
			sent.Add(int64(n))
		}
	})
	g.Expect(err).To(MatchError(errTooLarge))
	g.Expect(sent.Load()).To(BeNumerically("<", 2*maxAnswer))
}

func thumbprintOf(s *httptest.Server) string { return soap.ThumbprintSHA256(s.Certificate()) }
