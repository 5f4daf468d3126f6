package workload

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

// request connects to a cluster with this kubeconfig as Cluster API's cluster cache does, sends a request
// and returns the reason of its failure for a condition.
func request(t *testing.T, secrets *Secrets) error {
	t.Helper()
	clients, err := likeClusterCache(t.Context(), secrets, "team", "blue")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	return secrets.Failure(client.ObjectKey{Namespace: "team", Name: "blue"})
}

// A condition gets the reason for which there was no response, without a detail that would let the owner
// of the kubeconfig scan the network of the management cluster.
func TestFailure(t *testing.T) {
	server := newAPIServer(t, nil)
	ssh := listen(t, "SSH-2.0-OpenSSH_9.6\r\n")
	closed := newAPIServer(t, nil)
	closed.Close()
	for name, tc := range map[string]struct {
		kubeconfig string
		want       error
	}{
		"no connection": {kubeconfig(closed.URL, closed.ca(), "", ""), endpoints.ErrUnreachable},
		"another CA":    {kubeconfig(server.URL, "", "", ""), endpoints.ErrUntrusted},
		"not TLS":       {kubeconfig("https://"+ssh, server.ca(), "", ""), endpoints.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			err := request(t, NewSecrets(newReader(t, tc.kubeconfig), nil, nil))
			if !errors.Is(err, tc.want) || !strings.HasPrefix(err.Error(), "API server 127.0.0.1:") || strings.Contains(err.Error(), "SSH") || strings.Contains(err.Error(), "tenants-own") {
				t.Errorf("Failure() = %v, want %v", err, tc.want)
			}
		})
	}
}

// A response ends the failure, except a status that the cluster cache counts as one.
func TestFailureEnds(t *testing.T) {
	var status atomic.Int32
	server := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, "{}")
	})
	secrets := NewSecrets(newReader(t, kubeconfig(server.URL, server.ca(), "", "")), nil, nil)
	of := client.ObjectKey{Namespace: "team", Name: "blue"}
	if err := secrets.Failure(of); err != nil {
		t.Errorf("before the first request: %v", err)
	}
	for _, step := range []struct {
		status int32
		want   string
	}{
		{http.StatusUnauthorized, "it rejects the credentials of the manager: status 401"},
		{http.StatusServiceUnavailable, "it returns status 503"},
		{http.StatusForbidden, ""},
		{http.StatusInternalServerError, "it returns status 500"},
		{http.StatusOK, ""},
	} {
		status.Store(step.status)
		got := ""
		if err := request(t, secrets); err != nil {
			_, got, _ = strings.Cut(err.Error(), ": ")
		}
		if got != step.want {
			t.Errorf("after status %d: %q, want %q", step.status, got, step.want)
		}
	}
}

// listen returns the address of a server that answers each connection with a text.
func listen(t *testing.T, text string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, text)
			_ = connection.Close()
		}
	}()
	return listener.Addr().String()
}
