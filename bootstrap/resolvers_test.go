package bootstrap

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever is in charge of names on a machine is told of the name servers.
func TestResolversAreTold(t *testing.T) {
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
			script := strings.NewReplacer("/etc/", dir+"/etc/").Replace(string(prepareScript)) + "\nask_resolvers '10.0.0.53 fd00::53' '" + tc.search + "'\n"
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
