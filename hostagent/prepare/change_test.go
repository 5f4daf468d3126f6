package prepare_test

import (
	"os"
	"slices"
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

// containerd is not restarted with a configuration that it rejects, and its former
// files are restored: it would not start after a reset.
func TestRejectedSnippet(t *testing.T) {
	const (
		old, added = "etc/containerd/conf.d/nova-limits.toml", "etc/containerd/conf.d/nova-added.toml"
		check      = `case "$*" in *dump) if grep -qs broken "$T"/etc/containerd/conf.d/*; then echo "toml: expected =" >&2; exit 1; fi ;; esac`
	)
	for name, tc := range map[string]struct {
		running string
		calls   string
	}{
		"Running": {"0", ""},
		"Stopped": {"3", "systemctl restart containerd\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, commands)
			n.Command("containerd", check)
			n.Command("systemctl", `[ "$1" = is-active ] && exit `+tc.running+`; echo "systemctl $*" >>"$T/calls"`)
			n.Put("etc/containerd/config.toml", "version = 3\n")
			was, is := equipped(), equipped()
			n.Put(old, was.Files[0].Text)
			is.Files[0].Text = "broken"
			is.Files = append(is.Files, nodeconfig.File{Path: "/" + added, Mode: "0600", Text: "x = 1\n"})
			err := prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{was}, is)
			if err == nil || !strings.Contains(err.Error(), "changing containerd: containerd rejects its configuration: running containerd: exit status 1: toml: expected =") {
				t.Errorf("err = %v", err)
			}
			if n.Get(old) != was.Files[0].Text || n.There(added) || n.Get("calls") != tc.calls {
				t.Errorf("snippet %q, calls %q", n.Get(old), n.Get("calls"))
			}
			n.Put("calls", "")
			is.Files[0].Text = "y = 1\n"
			if err := prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{was, is}, is); err != nil {
				t.Fatal(err)
			}
			if n.Get(old) != "y = 1\n" || !n.There(added) || n.Get("calls") != "systemctl restart containerd\n" {
				t.Errorf("snippet %q, calls %q", n.Get(old), n.Get("calls"))
			}
		})
	}
}

// A configuration that containerd cannot use is replaced by the one that it runs
// with, also after an interruption. It has the settings that the agent added.
func TestRejectedConfig(t *testing.T) {
	const (
		config, snippet = "/etc/containerd/config.toml", "/etc/containerd/conf.d/nova-limits.toml"
		mirrors         = "\n[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = \"/etc/containerd/certs.d\"\n"
		running         = "imports = [\"/etc/containerd/conf.d/*.toml\"]\nversion = 3\n" + mirrors
		rejected        = "changing containerd: containerd rejects its configuration"
		command         = `case "$*" in *default) echo "version = 3"; exit ;; esac; if grep -qs broken "$2" "$T"/etc/containerd/conf.d/*; then exit 1; fi
grep -qs colons "$T"/etc/containerd/conf.d/* || cat "$2"`
	)
	own := func(text string) nodeconfig.File {
		return nodeconfig.File{Path: config, Mode: "0600", Text: text, Owner: "ops:adm"}
	}
	for name, tc := range map[string]struct {
		// image is the configuration before the applied settings.
		image       string
		change      func(was, is *nodeconfig.Machine)
		interrupted bool
		want        string
		err         string
	}{
		"Snippet": {"version = 3\n", func(_, is *nodeconfig.Machine) { is.Files[0].Text = "broken" }, false, running, rejected},
		"OwnConfig": {"", func(was, is *nodeconfig.Machine) {
			was.Files = append(was.Files, own("version = 3\n"))
			is.Files = append(is.Files, own("broken"))
		}, false, running, rejected},
		"OwnSnippet": {"", func(was, is *nodeconfig.Machine) {
			was.Files = append(was.Files, own("version = 3\n"))
			is.Files = slices.Clone(was.Files)
			is.Files[0].Text = "broken"
		}, false, running, rejected},
		"NewConfig":   {"version = 3\n", func(_, is *nodeconfig.Machine) { is.Files = append(is.Files, own("broken")) }, false, running, rejected},
		"Interrupted": {"version = 3\n", func(_, is *nodeconfig.Machine) { is.Files = append(is.Files, own("broken")) }, true, running, rejected},
		"NoMirrors":   {"version = 3\n", func(_, is *nodeconfig.Machine) { is.Files[0].Text = "colons" }, false, running, "changing containerd: a snippet removes the mirrors"},
		"None": {"", func(was, is *nodeconfig.Machine) {
			was.Mirrors, was.Snippets, is.Files[0].Text = false, false, "broken"
		}, false, "", rejected},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, commands)
			n.Command("containerd", command)
			n.Command("systemctl", `[ "$1" = is-active ] || echo "systemctl $*" >>"$T/calls"`)
			settings := func() *nodeconfig.Machine {
				return &nodeconfig.Machine{Mirrors: true, Snippets: true, Files: []nodeconfig.File{{Path: snippet, Mode: "0600", Text: "a = 1\n", Owner: "ops:adm"}}}
			}
			was, is := settings(), settings()
			tc.change(was, is)
			if tc.image != "" {
				n.Put(config, tc.image)
			}
			if err := prepare.Apply(t.Context(), n.Machine, was); err != nil {
				t.Fatal(err)
			}
			if got := n.Get(config); got != tc.want {
				t.Fatalf("%s before", got)
			}
			n.Put("calls", "")
			former := []*nodeconfig.Machine{was}
			if tc.interrupted {
				n.Command("chown", "exit 1")
				if err := prepare.Change(t.Context(), n.Machine, former, is); err == nil || n.Get(config) != "broken" {
					t.Fatalf("%q, err = %v", n.Get(config), err)
				}
				n.Command("chown", ":")
				former = append(former, is)
			}
			if err := prepare.Change(t.Context(), n.Machine, former, is); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("err = %v", err)
			}
			if n.Get(config) != tc.want || n.There(config) != (tc.want != "") || n.Get(snippet) != was.Files[0].Text || n.There(config+".nova-applied") || strings.Contains(n.Get("calls"), "restart") {
				t.Errorf("%s:\n%s\nsnippet %q, calls %q", config, n.Get(config), n.Get(snippet), n.Get("calls"))
			}
			if err := prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{was, is}, was); err != nil || n.There(config+".nova-applied") {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// Settings that are removed are restored, also if the command fails that makes a
// service read its configuration. A time service that does not start is no failure.
func TestRemovedSettings(t *testing.T) {
	const pool = "pool pool.ntp.org iburst\n"
	for name, tc := range map[string]struct {
		was nodeconfig.Machine
		// active is the service that resolves names.
		active string
		image  map[string]string
		chrony bool
		calls  string
	}{
		"Resolved":       {nodeconfig.Machine{NameServers: []string{"10.0.0.53"}}, "systemd-resolved", map[string]string{}, false, "systemctl restart systemd-resolved\n"},
		"NetworkManager": {nodeconfig.Machine{NameServers: []string{"10.0.0.53"}}, "NetworkManager", map[string]string{}, false, "systemctl reload NetworkManager\n"},
		"ResolvConf":     {nodeconfig.Machine{NameServers: []string{"10.0.0.53"}}, "none", map[string]string{"etc/resolv.conf": "nameserver 192.0.2.1\n"}, false, ""},
		"Timesyncd":      {nodeconfig.Machine{TimeServers: []string{"a"}}, "none", map[string]string{}, false, "systemctl restart systemd-timesyncd\n"},
		"Chrony":         {nodeconfig.Machine{TimeServers: []string{"a"}}, "none", map[string]string{"etc/chrony.conf": pool}, true, "systemctl restart chronyd\n"},
		"CAs":            {nodeconfig.Machine{TrustCAs: true, Files: []nodeconfig.File{{Path: "/etc/nova/ca/nova-proxy-00.crt", Mode: "0644", Text: "ca"}}}, "none", map[string]string{"usr/local/share/ca-certificates/own.crt": "own", "usr/local/share/ca-certificates/nova-root-01.crt": "own"}, false, "update\nsystemctl restart containerd\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := agenttest.New(t, map[string]string{
				"update-ca-certificates": `[ -e "$T/reset" ] && exit 1; echo update >>"$T/calls"`,
				"systemctl":              `if [ "$1" = is-active ]; then [ "$3" = ` + tc.active + ` ]; exit; fi; [ -e "$T/reset" ] && [ "$2" != chronyd ] && [ "$2" != systemd-timesyncd ] && exit 1; echo "systemctl $*" >>"$T/calls"`,
			})
			n.Put("usr/local/share/.keep", "")
			if tc.chrony {
				n.Command("chronyd", ":")
			}
			for path, text := range tc.image {
				n.Put(path, text)
			}
			if err := prepare.Apply(t.Context(), n.Machine, &tc.was); err != nil {
				t.Fatal(err)
			}
			if tc.chrony && !strings.Contains(n.Get("etc/chrony.conf"), "server a iburst") {
				t.Fatal("the servers were not set")
			}
			n.Put("calls", "")
			n.Put("reset", "")
			_ = prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{&tc.was}, &nodeconfig.Machine{})
			if err := n.Remove("/reset"); err != nil {
				t.Fatal(err)
			}
			if err := prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{&tc.was, {}}, &nodeconfig.Machine{}); err != nil {
				t.Fatal(err)
			}
			if got := n.Get("calls"); got != tc.calls {
				t.Errorf("calls %q, want %q", got, tc.calls)
			}
			for path, text := range tc.image {
				if got := n.Get(path); got != text {
					t.Errorf("%s is %q, want %q", path, got, text)
				}
			}
			for _, path := range []string{"etc/systemd/resolved.conf.d/90-nova.conf", "etc/NetworkManager/conf.d/90-nova.conf", "etc/systemd/timesyncd.conf.d/90-nova.conf", "usr/local/share/ca-certificates/nova-proxy-00.crt"} {
				if got := n.Get(path); got != "" {
					t.Errorf("%s is %q", path, got)
				}
			}
		})
	}
}

// A link that name servers replaced is restored as a link.
func TestRestoredLink(t *testing.T) {
	n := agenttest.New(t, map[string]string{"systemctl": "exit 3"})
	n.Put("run/stub", "nameserver 127.0.0.53\n")
	n.Put("etc/.keep", "")
	if err := os.Symlink("../run/stub", n.Dir("etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	none, first, second := &nodeconfig.Machine{}, &nodeconfig.Machine{NameServers: []string{"10.0.0.53"}}, &nodeconfig.Machine{NameServers: []string{"10.0.0.54"}}
	former := none
	for _, c := range []*nodeconfig.Machine{first, second, none} {
		if err := prepare.Change(t.Context(), n.Machine, []*nodeconfig.Machine{former}, c); err != nil {
			t.Fatal(err)
		}
		former = c
	}
	if target, err := os.Readlink(n.Dir("etc/resolv.conf")); err != nil || target != "../run/stub" || n.Get("run/stub") != "nameserver 127.0.0.53\n" {
		t.Errorf("target %q, err = %v", target, err)
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
	// Credentials of the image repository make mirrors too, and can be removed.
	if got := prepare.Fixed(&nodeconfig.Machine{Mirrors: true}, &nodeconfig.Machine{}); len(got) != 0 {
		t.Errorf("fixed: %v", got)
	}
	if got := prepare.Fixed(equipped(), equipped()); len(got) != 0 {
		t.Errorf("fixed: %v", got)
	}
}
