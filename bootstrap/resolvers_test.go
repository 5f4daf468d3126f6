package bootstrap

import (
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// Pods use the same name servers and no others: the kubelet's file contains
// only them, and the other kubelets of the cluster are not configured with this
// file.
func TestPodsAskTheResolvers(t *testing.T) {
	const patchFile, own = "/etc/kubernetes/patches/kubeletconfiguration+merge.json", "/etc/nova/resolv.conf"
	resolvers := bootstrapv1.NodeDNSSpec{Servers: []string{"10.0.0.53", "fd00::53"}, SearchDomains: []string{"corp", "blue.corp"}}
	for name, tc := range map[string]struct {
		resolvers   bootstrapv1.NodeDNSSpec
		patch       string
		init, joins string
		want        string
	}{
		"Unset":      {},
		"UnsetPatch": {patch: "maxPods: 7", joins: `{"maxPods":7}`},
		"Servers": {
			resolvers: bootstrapv1.NodeDNSSpec{Servers: resolvers.Servers},
			init:      `{"resolvConf":"` + own + `"}`, joins: `{"resolvConf":"` + own + `"}`,
			want: "nameserver 10.0.0.53\nnameserver fd00::53\n",
		},
		"BesidePatch": {
			resolvers: resolvers, patch: "maxPods: 7\ncgroupRoot: null",
			init:  `{"cgroupRoot":null,"maxPods":7,"resolvConf":"` + own + `"}`,
			joins: `{"cgroupRoot":null,"maxPods":7,"resolvConf":"` + own + `"}`,
			want:  "nameserver 10.0.0.53\nnameserver fd00::53\nsearch corp blue.corp\n",
		},
		"PatchWins": {
			resolvers: resolvers, patch: "resolvConf: /etc/mine",
			init: `{"resolvConf":"/etc/mine"}`, joins: `{"resolvConf":"/etc/mine"}`,
			want: "nameserver 10.0.0.53\nnameserver fd00::53\nsearch corp blue.corp\n",
		},
	} {
		for mode, patch := range map[Mode]string{Init: tc.init, JoinControlPlane: tc.joins, JoinWorker: tc.joins} {
			t.Run(name+string(mode), func(t *testing.T) {
				out := render(t, facts(mode, func(in *Input) {
					in.Platform.DNS.Nodes = tc.resolvers
					if tc.patch != "" {
						in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "KubeletConfiguration", Patch: tc.patch}}
					}
				}))
				files := filesOf(t, out)
				if files[own] != tc.want {
					t.Errorf("%s is %q, want %q", own, files[own], tc.want)
				}
				if got := strings.TrimSpace(files[patchFile]); got != patch {
					t.Errorf("the kubelet's patch is %s, want %s", got, patch)
				}
				kubeadm := configOf(t, out).Join.Kubeadm
				if strings.Contains(kubeadm, own) {
					t.Errorf("the whole cluster is configured with this machine's file:\n%s", kubeadm)
				}
				if (patch != "" || mode == Init) != strings.Contains(kubeadm, "directory: /etc/kubernetes/patches") {
					t.Errorf("kubeadm's patches are set: want the opposite:\n%s", kubeadm)
				}
			})
		}
	}
}
