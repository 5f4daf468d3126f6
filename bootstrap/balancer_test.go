package bootstrap

import (
	"slices"
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

// A host name is not resolved only once.
func TestBalancerOfNamedEndpoint(t *testing.T) {
	config := balancerConfig(Endpoint{Host: "api.corp", Port: 443}, 6443)
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
			join := configOf(t, render(t, tc.in)).Join
			if !slices.Contains(join.Manifests, balancerRBAC) || join.BalancerPort != 0 {
				t.Error("nodes may not read where the API servers are")
			}
			if turns := join.KubeProxyPort == 7443; turns != tc.turns {
				t.Errorf("%s: kube-proxy is turned = %v", tc.reason, turns)
			}
		})
	}
}

func TestWorkerHasABalancer(t *testing.T) {
	out := render(t, facts(JoinWorker, balanced))
	files, join := filesOf(t, out), configOf(t, out).Join
	if join.BalancerPort != 7443 || len(join.Manifests) > 0 || !strings.Contains(files["/etc/nova/api-balancer/pod.yaml"], "kind: Pod") ||
		!strings.Contains(files["/etc/nova/api-balancer/haproxy.base"], "bind 127.0.0.1:7443\n") {
		t.Errorf("join = %+v, files = %v", join, files)
	}
}
