package bootstrap

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// The service that resolves names on a machine is configured with the name
// servers.
func TestResolversAreConfigured(t *testing.T) {
	for name, tc := range map[string]struct{ active, search, file, want, call string }{
		"Resolved": {
			"systemd-resolved", "corp blue.corp", "etc/systemd/resolved.conf.d/90-nova.conf",
			"[Resolve]\nDNS=10.0.0.53 fd00::53\nDomains=~. corp blue.corp\n", "systemctl restart systemd-resolved\n",
		},
		"ResolvedWithoutDomains": {
			"systemd-resolved", "", "etc/systemd/resolved.conf.d/90-nova.conf",
			"[Resolve]\nDNS=10.0.0.53 fd00::53\nDomains=~.\n", "systemctl restart systemd-resolved\n",
		},
		"NetworkManager": {
			"NetworkManager", "corp blue.corp", "etc/NetworkManager/conf.d/90-nova.conf",
			"[global-dns]\nsearches=corp,blue.corp\n[global-dns-domain-*]\nservers=10.0.0.53,fd00::53\n", "systemctl reload NetworkManager\n",
		},
		"Nobody": {"nobody", "corp blue.corp", "etc/resolv.conf", "nameserver 10.0.0.53\nnameserver fd00::53\nsearch corp blue.corp\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := strings.NewReplacer("/etc/", dir+"/etc/").Replace(string(prepareScript)) + "\nset_resolvers '10.0.0.53 fd00::53' '" + tc.search + "'\n"
			for path, content := range map[string]string{
				"etc/resolv.conf": "nameserver 192.0.2.1\n", "prepare.sh": script,
				"bin/systemctl": "#!/bin/sh\nif [ \"$1\" = is-active ]; then [ \"$3\" = " + tc.active + " ]; else echo \"systemctl $*\"; fi\n",
			} {
				path = filepath.Join(dir, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o700)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "prepare.sh"))
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != tc.call {
				t.Fatalf("err = %v, output %q, want %q", err, out, tc.call)
			}
			got, err := os.ReadFile(filepath.Join(dir, tc.file))
			if err != nil || string(got) != tc.want {
				t.Errorf("err = %v, %s is %q, want %q", err, tc.file, got, tc.want)
			}
		})
	}
}

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
				files := filesOf(t, render(t, facts(mode, func(in *Input) {
					in.Platform.DNS.Nodes = tc.resolvers
					if tc.patch != "" {
						in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "KubeletConfiguration", Patch: tc.patch}}
					}
				})))
				if files[own] != tc.want {
					t.Errorf("%s is %q, want %q", own, files[own], tc.want)
				}
				if got := strings.TrimSpace(files[patchFile]); got != patch {
					t.Errorf("the kubelet's patch is %s, want %s", got, patch)
				}
				kubeadm := files["/run/nova/kubeadm.template"]
				if strings.Contains(kubeadm, own) {
					t.Errorf("the whole cluster is configured with this machine's file:\n%s", kubeadm)
				}
				if (patch != "") != strings.Contains(kubeadm, "directory: /etc/kubernetes/patches") {
					t.Errorf("kubeadm's patches are set: want the opposite:\n%s", kubeadm)
				}
			})
		}
	}
}
