package balancer

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
)

const (
	base = "backend api\n  server endpoint 10.77.0.10:7443 backup init-addr libc,none\n"
)

// event is an event of a watch of the API servers.
func event(kind, list string) string {
	return `{"type":"` + kind + `","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"kubernetes"},"addressType":"IPv4","endpoints":[` +
		list + `],"ports":[{"name":"https","port":7443,"protocol":"TCP"}]}}` + "\n"
}

func at(address string) string {
	return `{"addresses":["` + address + `"],"conditions":{"ready":true}}`
}

// newNode is a node whose load balancer is the server.
func newNode(t *testing.T, server *agenttest.Server) *agenttest.Machine {
	t.Helper()
	n := agenttest.New(t, map[string]string{"systemctl": `echo "systemctl $*" >>"$T/calls"`})
	n.Put("etc/nova/api-balancer/haproxy.base", base)
	n.Put("etc/nova/api-balancer/pod.yaml", "kind: Pod\n")
	n.Put("etc/kubernetes/kubelet.conf", server.Kubeconfig())
	return n
}

func TestBalancerFollowsTheControlPlane(t *testing.T) {
	events := ""
	server := agenttest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices" || r.URL.Query().Get("fieldSelector") != "metadata.name=kubernetes" ||
			r.URL.Query().Get("timeoutSeconds") == "" || r.Header.Get("Authorization") != "Bearer t0ken" {
			t.Errorf("the kubelet may not send %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(events))
	})
	n := newNode(t, server)
	for _, step := range []struct{ name, events, want string }{
		{"the first ones", event("ADDED", at("10.0.0.2")+","+at("10.0.0.1")), "  server api-1 10.0.0.1:7443\n  server api-2 10.0.0.2:7443\n"},
		{"a removed server", event("ADDED", at("10.0.0.1")+","+at("10.0.0.2")) + event("MODIFIED", at("10.0.0.2")), "  server api-1 10.0.0.2:7443\n"},
		{"none is not believed", event("MODIFIED", ""), "  server api-1 10.0.0.2:7443\n"},
		{"a deleted object", event("DELETED", at("10.0.0.9")), "  server api-1 10.0.0.2:7443\n"},
		{"an error", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}` + "\n", "  server api-1 10.0.0.2:7443\n"},
		{"nothing at all", "", "  server api-1 10.0.0.2:7443\n"},
		{"IPv6", event("ADDED", at("fd00::1")), "  server api-1 [fd00::1]:7443\n"},
	} {
		events = step.events
		if err := followOnce(t.Context(), n.Machine, server.Port()); err != nil {
			t.Fatalf("%s: %v\n%s", step.name, err, n.Log)
		}
		if got := n.Get(config); got != base+step.want {
			t.Errorf("%s: the configuration is %q, want %q", step.name, got, step.want)
		}
	}
}

func TestBalancerStarts(t *testing.T) {
	refuse := atomic.Int32{}
	refuse.Store(2)
	server := agenttest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if refuse.Add(-1) >= 0 {
			agenttest.Fail(w, http.StatusServiceUnavailable, "ServiceUnavailable")
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	n := newNode(t, server)
	// kubeadm writes YAML.
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- cluster:\n    insecure-skip-tls-verify: true\n    server: https://10.77.0.10:7443\n  name: c\n" +
		"contexts:\n- context: {cluster: c, user: u}\n  name: c\nusers:\n- name: u\n  user: {token: t0ken}\n"
	n.Put("etc/kubernetes/kubelet.conf", kubeconfig)
	for range 2 {
		if err := Start(t.Context(), n.Machine, server.Port()); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
	}
	local := "server: " + server.URL + "\n    tls-server-name: kubernetes\n"
	if got := n.Get("etc/kubernetes/kubelet.conf"); got != strings.Replace(kubeconfig, "server: https://10.77.0.10:7443\n", local, 1) {
		t.Errorf("kubelet.conf is %q", got)
	}
	if got := n.Get("etc/kubernetes/manifests/nova-api-balancer.yaml"); got != "kind: Pod\n" {
		t.Error("the pod is not where the kubelet looks")
	}
	if calls := n.Get("calls"); strings.Count(calls, "restart kubelet") != 1 || !strings.Contains(calls, "enable --now nova-api-balancer.service") {
		t.Errorf("calls: %s", calls)
	}
	if n.Waits(time.Second) != 2 || n.Get(config) != base {
		t.Errorf("waited %d s; the configuration is %q", n.Waits(time.Second), n.Get(config))
	}
}

// The kubelet must not use a load balancer that does not work.
func TestBalancerThatDoesNotComeUp(t *testing.T) {
	server := agenttest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
		agenttest.Fail(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	})
	n := newNode(t, server)
	before := n.Get("etc/kubernetes/kubelet.conf")
	err := Start(t.Context(), n.Machine, server.Port())
	if err == nil || !strings.Contains(err.Error(), "no API server responds through the load balancer on 127.0.0.1:") {
		t.Errorf("%v", err)
	}
	if n.Get("etc/kubernetes/kubelet.conf") != before || strings.Contains(n.Get("calls"), "kubelet") {
		t.Error("the kubelet was sent to it all the same")
	}
}
