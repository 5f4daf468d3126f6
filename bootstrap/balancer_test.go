package bootstrap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// balanced sets every field that affects how nodes reach other servers.
func balanced(in *Input) {
	in.Platform.APIServerLoadBalancer = &bootstrapv1.APIServerLoadBalancerSpec{}
	in.Platform.KubeProxy = bootstrapv1.KubeProxySpec{Mode: bootstrapv1.KubeProxyModeIPVS, Scheduler: "lc"}
	in.Platform.DNS.Nodes = bootstrapv1.NodeDNSSpec{Servers: []string{"10.0.0.53", "fd00::53"}, SearchDomains: []string{"corp", "blue.corp"}}
	in.Spec.Kernel.Modules = []string{"br_netfilter", "ip_vs"}
	in.KubeVIP = &KubeVIP{Image: "ghcr.io/kube-vip/kube-vip:v0.9.1"}
	in.Endpoint.Port = 7443
}

// event is an event of a watch of the API servers.
func event(kind, list string) string {
	return `{"type":"` + kind + `","object":{"kind":"EndpointSlice","metadata":{"name":"kubernetes"},"addressType":"IPv4","endpoints":[` +
		list + `],"ports":[{"name":"https","port":7443,"protocol":"TCP"}]}}` + "\n"
}

func at(address string) string {
	return `{"addresses":["` + address + `"],"conditions":{"ready":true}}`
}

// balancerNode is a folder that the load balancer's script uses as the root of
// a machine.
func balancerNode(t *testing.T, in Input) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	for path, content := range filesOf(t, render(t, in)) {
		n.write(path, content)
	}
	script := strings.NewReplacer("/etc/nova", n.dir+"/etc/nova", "/etc/kubernetes", n.dir+"/etc/kubernetes",
		"while :; do", `while [ ! -e "$T/over" ]; do`, "timeout=900", "timeout=3").Replace(n.read("etc/nova/api-balancer/balancer.sh"))
	n.write("balancer.sh", script)
	n.write("etc/kubernetes/kubelet.conf", "clusters:\n- cluster:\n    certificate-authority-data: YQ==\n    server: https://10.77.0.10:7443\n  name: c\n")
	// readyz fails as often as the file refuse states; a watch returns the
	// events of a file, and then none.
	n.command("kubectl", `echo "$*" >>"$T/requests"
case "$*" in
*/readyz) left=$(cat "$T/refuse"); [ "$left" -gt 0 ] || exit 0; echo $((left - 1)) >"$T/refuse"; exit 1 ;;
*) cat "$T/events"; touch "$T/over"; exit 1 ;;
esac`)
	n.command("systemctl", `echo "systemctl $*" >>"$T/calls"`)
	n.command("sleep", ":")
	n.write("refuse", "0")
	n.write("events", "")
	return n
}

func (n *node) command(name, body string) {
	n.t.Helper()
	n.program(filepath.Join("bin", name), "#!/bin/sh\n"+body+"\n")
}

func (n *node) balance(verb string) (string, error) {
	cmd := exec.CommandContext(n.t.Context(), "sh", filepath.Join(n.dir, "balancer.sh"), verb, "7443")
	cmd.Env = append(os.Environ(), "T="+n.dir, "PATH="+filepath.Join(n.dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (n *node) servers() string {
	n.t.Helper()
	_, servers, found := strings.Cut(n.read("etc/nova/api-balancer/haproxy.cfg"), " backup init-addr libc,none\n")
	if !found {
		n.t.Fatal("the cluster's endpoint is no backup")
	}
	return servers
}

func TestBalancerFollowsTheControlPlane(t *testing.T) {
	n := balancerNode(t, facts(JoinWorker, balanced))
	for _, step := range []struct{ name, events, want string }{
		{"the first ones", event("ADDED", at("10.0.0.2")+","+at("10.0.0.1")), "  server api-1 10.0.0.1:7443\n  server api-2 10.0.0.2:7443\n"},
		{"a removed server", event("ADDED", at("10.0.0.1")+","+at("10.0.0.2")) + event("MODIFIED", at("10.0.0.2")), "  server api-1 10.0.0.2:7443\n"},
		{"none is not believed", event("MODIFIED", ""), "  server api-1 10.0.0.2:7443\n"},
		{"a deleted object", event("DELETED", at("10.0.0.9")), "  server api-1 10.0.0.2:7443\n"},
		{"an error", `{"type":"ERROR","object":{"code":410}}` + "\n", "  server api-1 10.0.0.2:7443\n"},
		{"nothing at all", "", "  server api-1 10.0.0.2:7443\n"},
		{"IPv6", event("ADDED", at("fd00::1")), "  server api-1 [fd00::1]:7443\n"},
	} {
		t.Run(step.name, func(t *testing.T) {
			_ = os.Remove(filepath.Join(n.dir, "over"))
			n.write("events", step.events)
			if out, err := n.balance("follow"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := n.servers(); got != step.want {
				t.Errorf("servers are %q, want %q", got, step.want)
			}
		})
	}
	if requests := n.read("requests"); !strings.Contains(requests, "--server https://127.0.0.1:7443 --tls-server-name kubernetes get --raw") {
		t.Errorf("no request through the load balancer:\n%s", requests)
	}
}

func TestBalancerStarts(t *testing.T) {
	n := balancerNode(t, facts(JoinWorker, balanced))
	n.write("refuse", "2")
	for range 2 {
		if out, err := n.balance("start"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	const want = "clusters:\n- cluster:\n    certificate-authority-data: YQ==\n    server: https://127.0.0.1:7443\n    tls-server-name: kubernetes\n  name: c\n"
	if got := n.read("etc/kubernetes/kubelet.conf"); got != want {
		t.Errorf("kubelet.conf is %q", got)
	}
	if got := n.read("etc/kubernetes/manifests/nova-api-balancer.yaml"); got != n.read("etc/nova/api-balancer/pod.yaml") {
		t.Error("the pod is not where the kubelet looks")
	}
	if calls := n.read("calls"); strings.Count(calls, "restart kubelet") != 1 || !strings.Contains(calls, "enable --now nova-api-balancer.service") {
		t.Errorf("calls: %s", calls)
	}
	if n.servers() != "" {
		t.Error("lists servers without an event")
	}
}

// The kubelet must not use a load balancer that does not work.
func TestBalancerThatDoesNotComeUp(t *testing.T) {
	n := balancerNode(t, facts(JoinWorker, balanced))
	n.write("refuse", "99")
	out, err := n.balance("start")
	if err == nil || !strings.Contains(out, "no API server responds through the load balancer on 127.0.0.1:7443") {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(n.read("etc/kubernetes/kubelet.conf"), "https://10.77.0.10:7443") {
		t.Error("the kubelet was sent to it all the same")
	}
}

// A host name is not resolved only once.
func TestBalancerOfNamedEndpoint(t *testing.T) {
	config := balancerConfig(Endpoint{Host: "api.corp", Port: 443}, "6443")
	for _, want := range []string{"resolvers node\n  parse-resolv-conf\n", "server endpoint api.corp:443 backup init-addr libc,none resolvers node\n"} {
		if !strings.Contains(config, want) {
			t.Errorf("%s\nlacks %s", config, want)
		}
	}
}

func TestControlPlaneAdmitsBalancers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		in     Input
		turns  bool
	}{
		"Init": {"all workers of a new cluster get a load balancer", facts(Init, balanced), true},
		"Join": {"workers of a cluster that was created without load balancers have none", facts(JoinControlPlane, balanced), false},
		"Restore": {"nor have those of one that is restored", facts(Init, func(in *Input) {
			balanced(in)
			restoring(in)
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			files := filesOf(t, render(t, tc.in))
			command := files["/run/nova/postKubeadmCommands/00"]
			if !strings.Contains(command, "kubectl apply -f /run/nova/api-balancer.yaml") || files["/run/nova/api-balancer.yaml"] == "" {
				t.Error("nodes may not read where the API servers are")
			}
			if turns := strings.Contains(command, "https://127.0.0.1:7443"); turns != tc.turns {
				t.Errorf("%s: kube-proxy is turned = %v", tc.reason, turns)
			}
		})
	}
}

// kubeProxyServer simulates an API server that fails the requests in the file
// fails, each once, and has or lacks a kube-proxy.
const kubeProxyServer = `echo "kubectl $*" >>"$T/requests"
fails=$(head -n 1 "$T/fails")
case "$fails" in
?*) case "$*" in *"$fails"*) sed -i 1d "$T/fails"; exit 1 ;; esac ;;
esac
case "$*" in
*"get configmap"*) cat "$T/proxy" ;;
replace*) cat >"$T/proxy" ;;
*"rollout restart"*) cp "$T/proxy" "$T/restarted" ;;
esac`

func TestKubeProxyIsTurned(t *testing.T) {
	const (
		before = "data:\n  kubeconfig.conf: |-\n    clusters:\n    - cluster:\n        server: https://10.77.0.10:7443\n      name: default\n"
		after  = "data:\n  kubeconfig.conf: |-\n    clusters:\n    - cluster:\n        server: https://127.0.0.1:7443\n        tls-server-name: kubernetes\n      name: default\n"
	)
	for name, tc := range map[string]struct {
		reason, proxy, fails, want, err string
	}{
		"Once":       {reason: "nothing fails", proxy: before, want: after},
		"NoProxy":    {reason: "a cluster without kube-proxy has nothing to turn"},
		"Apply":      {reason: "a request that fails is repeated", proxy: before, fails: "apply -f\n", want: after},
		"Get":        {reason: "an unreadable object is not treated as missing", proxy: before, fails: "get configmap\n", want: after},
		"Replace":    {reason: "after a conflict the object is read again", proxy: before, fails: "replace\n", want: after},
		"Restart":    {reason: "a redirected kube-proxy is not redirected twice", proxy: before, fails: "rollout restart\n", want: after},
		"ForEver":    {reason: "the failure is reported", proxy: before, fails: strings.Repeat("replace\n", 60), err: "postKubeadmCommands 00 failed with status 1"},
		"NeverAsked": {reason: "the failure is reported", proxy: before, fails: strings.Repeat("get configmap\n", 60), err: "postKubeadmCommands 00 failed with status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, facts(Init, func(in *Input) {
				in.Platform.APIServerLoadBalancer = &bootstrapv1.APIServerLoadBalancerSpec{}
				in.Endpoint.Port = 7443
				in.Network.APIServerPort = 7443
			}))
			n.command("kubectl", kubeProxyServer)
			n.write("proxy", tc.proxy)
			n.write("fails", tc.fails)
			err := n.boot()
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if got := n.read("restarted"); got != tc.want {
				t.Errorf("%s: kube-proxy was restarted with %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
