package probe

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
)

func TestServingAPIServers(t *testing.T) {
	serve := func(status int) string {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "https://")
	}
	hangs, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Close() })
	serving, failing := APIServers(t.Context(), &rest.Config{Host: "https://192.0.2.1:6443", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, map[string]string{
		"serves": serve(http.StatusOK), "fails": serve(http.StatusInternalServerError), "off": "127.0.0.1:1",
		"refuses": serve(http.StatusUnauthorized), "hangs": hangs.Addr().String(),
	})
	if diff := cmp.Diff([]string{"serves"}, sets.List(serving)); diff != "" {
		t.Errorf("serving (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"fails", "off"}, sets.List(failing)); diff != "" {
		t.Errorf("failing (-want +got)\n%s", diff)
	}
	if serving, failing := APIServers(t.Context(), nil, map[string]string{"m": "127.0.0.1:1"}); serving.Len()+failing.Len() > 0 {
		t.Errorf("without a kubeconfig: %v and %v", serving, failing)
	}
}
