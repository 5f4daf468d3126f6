package prepare_test

import (
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/prepare"
)

// A running machine repeats only the steps whose settings changed.
func TestOnlyChangesAreApplied(t *testing.T) {
	const restart = "systemctl restart containerd\n"
	for name, tc := range map[string]struct {
		reason string
		change func(*nodeconfig.Machine)
		calls  string
	}{
		"Nothing":    {"nothing is repeated", func(*nodeconfig.Machine) {}, ""},
		"File":       {"a file is written again with its owner", func(c *nodeconfig.Machine) { c.Files[1].Text = "x" }, "chown -- ops:adm /etc/owned\n"},
		"Sysctl":     {"modules and parameters are one step", func(c *nodeconfig.Machine) { c.Sysctls[0].Value = "1" }, "modprobe ip_vs\nmodprobe ip_vs_rr\nsysctl\n"},
		"Snippet":    {"containerd reads its configuration when it starts", func(c *nodeconfig.Machine) { c.Files[0].Text = "x" }, restart},
		"NoSnippets": {"the last snippet is removed", func(c *nodeconfig.Machine) { c.Files, c.Snippets = c.Files[1:], false }, restart},
		"Mirror": {"containerd reads mirrors when it pulls", func(c *nodeconfig.Machine) {
			c.Files = append(c.Files, nodeconfig.File{Path: "/etc/containerd/certs.d/x/hosts.toml", Mode: "0644", Text: "x"})
		}, ""},
		"Unit": {"systemd reads its units", func(c *nodeconfig.Machine) {
			c.Files = append(c.Files, nodeconfig.File{Path: "/etc/systemd/system/x.service", Mode: "0644", Text: "x"})
		}, "systemctl daemon-reload\n"},
		"TimeServers": {"the time service reads its servers when it starts", func(c *nodeconfig.Machine) { c.TimeServers = []string{"a"} }, "systemctl restart systemd-timesyncd\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, commands)
			n.Put("etc/containerd/config.toml", "version = 3\n")
			was, is := equipped(), equipped()
			tc.change(is)
			for _, f := range was.Files {
				n.Put(f.Path, f.Text)
			}
			if err := prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{was}, is); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(n.Get("calls"), n.Dir(""), ""); got != tc.calls {
				t.Errorf("%s: calls %q, want %q", tc.reason, got, tc.calls)
			}
			for _, f := range was.Files[:1] {
				if n.There(f.Path) == (len(prepare.RemovedFiles([]*nodeconfig.Machine{was}, is)) > 0) {
					t.Errorf("%s exists: %v", f.Path, n.There(f.Path))
				}
			}
		})
	}
}

// A unit that is removed is forgotten by systemd.
func TestRemovedUnit(t *testing.T) {
	n := agenttest.New(t, commands)
	n.Put("etc/systemd/system/x.service", "x")
	was := &nodeconfig.Machine{Files: []nodeconfig.File{{Path: "/etc/systemd/system/x.service", Mode: "0644", Text: "x"}}}
	if err := prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{was}, &nodeconfig.Machine{}); err != nil {
		t.Fatal(err)
	}
	if n.There("etc/systemd/system/x.service") || n.Get("calls") != "systemctl daemon-reload\n" {
		t.Errorf("calls %q", n.Get("calls"))
	}
}

// Settings that only a first boot applies are named.
func TestFixedSettings(t *testing.T) {
	other := equipped()
	other.Disks, other.KernelArguments, other.EtcdDir = nil, []string{"quiet"}, "/x"
	if got := strings.Join(prepare.Fixed(equipped(), other), ", "); got != "kernel arguments, disks, data directory of etcd" {
		t.Errorf("fixed: %s", got)
	}
	if got := prepare.Fixed(equipped(), equipped()); len(got) != 0 {
		t.Errorf("fixed: %v", got)
	}
}
