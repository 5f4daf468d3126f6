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

const (
	certificateA = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
	certificateB = "-----BEGIN CERTIFICATE-----\nYg==\n-----END CERTIFICATE-----\n"
)

// surrounded sets all platform settings.
func surrounded(in *Input) {
	in.Platform = bootstrapv1.PlatformSpec{
		Proxy: bootstrapv1.ProxySpec{
			HTTPProxy: "http://proxy.corp:3128", HTTPSProxy: "https://[fd00::1]:3129/",
			NoProxy:              []string{"10.0.0.0/8", "git.corp", ".internal"},
			CredentialsSecretRef: bootstrapv1.SecretReference{Name: "proxy"},
		},
		ImageRepository: "hub.universe.corp/nova-universe",
		RegistryMirrors: []bootstrapv1.RegistryMirror{
			{Registry: "docker.io", Endpoints: []string{"https://hub.universe.corp/docker", "https://mirror.corp"}},
			{Registry: "*", Endpoints: []string{"https://hub.universe.corp/all/"}},
		},
		PackageRepositories: []bootstrapv1.PackageRepository{
			{Name: "nova", URI: "https://packages.universe.corp/apt", Suite: "stable", Components: []string{"main", "extra"}, Key: "the key"},
			{Name: "flat", URI: "https://packages.universe.corp/flat", Suite: "/"},
		},
		NTP: bootstrapv1.NTPSpec{Servers: []string{"ntp1.corp", "10.0.0.1"}},
	}
	in.PlatformData = PlatformData{
		ProxyCredentials:  ServerCredentials{Username: "nova", Password: "p'a:s@s/1"},
		MirrorCredentials: ServerCredentials{Token: "t0ken"},
		ProxyCA:           []byte("# root\n" + certificateA + "# next\n" + certificateB + "# end\n"),
		MirrorCA:          []byte(certificateB),
	}
}

// Every file with credentials is readable for root only, and no other file
// contains credentials.
func TestLoginsAreForRootAlone(t *testing.T) {
	for _, mode := range []Mode{Init, JoinControlPlane, JoinWorker} {
		found := 0
		for _, f := range read(t, render(t, facts(mode, surrounded))).WriteFiles {
			secret := false
			for _, word := range []string{"p%27a", "p'a:s", "p''a:s", "t0ken"} {
				secret = secret || strings.Contains(f.Content, word)
			}
			if !secret {
				continue
			}
			found++
			if f.Permissions != "0600" {
				t.Errorf("%s: %s holds a login and is %s", mode, f.Path, f.Permissions)
			}
		}
		if found < 6 {
			t.Errorf("%s: only %d files hold a login", mode, found)
		}
	}
}

func TestClusterIsReachedDirectly(t *testing.T) {
	env := filesOf(t, render(t, facts(JoinWorker, surrounded)))["/etc/nova/proxy.env"]
	const want = "NO_PROXY='localhost,127.0.0.1,::1,__NOVA_NODE_IP__,10.77.0.10,10.244.0.0/16,10.96.0.0/16,.svc,.cluster.local,10.0.0.0/8,git.corp,.internal'\n"
	if !strings.Contains(env, want) {
		t.Errorf("%s\nlacks %s", env, want)
	}
	env = filesOf(t, render(t, facts(JoinWorker, func(in *Input) {
		surrounded(in)
		in.Network, in.Platform.Proxy.NoProxy = Network{}, nil
	})))["/etc/nova/proxy.env"]
	if !strings.Contains(env, "10.77.0.10,10.96.0.0/12,.svc,.cluster.local'") {
		t.Errorf("kubeadm's own ranges are missing:\n%s", env)
	}
}

func TestSurroundingErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*PlatformData)
		field  string
	}{
		"NoPEM":        {func(s *PlatformData) { s.ProxyCA = []byte("hunter2") }, "platform.proxy.trustedCAFrom"},
		"PrivateKey":   {func(s *PlatformData) { s.MirrorCA = []byte("-----BEGIN hunter2-----\nYQ==\n-----END hunter2-----\n") }, "platform.mirrorTrustedCAFrom"},
		"TokenBreaks":  {func(s *PlatformData) { s.MirrorCredentials = ServerCredentials{Token: "hunter2\n"} }, "platform.mirrorCredentialsSecretRef"},
		"SpaceInLogin": {func(s *PlatformData) { s.MirrorCredentials = ServerCredentials{Username: "a", Password: "hunter2 b"} }, "platform.mirrorCredentialsSecretRef"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(facts(JoinWorker, func(in *Input) {
				surrounded(in)
				tc.change(&in.PlatformData)
			}))
			var malformed *RenderError
			if !errors.As(err, &malformed) || malformed.Field != tc.field {
				t.Fatalf("err = %v, want one of %s", err, tc.field)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v quotes a secret", err)
			}
		})
	}
}

// containerd simulates a containerd with configurations of this version. dump
// prints its configuration and the snippets unchanged.
func containerd(version string) string {
	return "case \"$*\" in\n*default) printf 'disabled_plugins = []\\nversion = " + version + "\\n' ;;\n" +
		"*dump) cat \"$2\" \"$T\"/etc/containerd/conf.d/* 2>/dev/null || true ;;\nesac\n"
}

// prepare boots a node with or without chronyd, with a configuration of
// containerd.
func prepare(t *testing.T, config string, programs ...string) *node {
	t.Helper()
	n, err := surroundedNode(t, "2", config, programs...)
	if err != nil {
		t.Fatalf("%v\n%s", err, n.read("var/log/nova-bootstrap.log"))
	}
	return n
}

// surroundedNode boots a node whose containerd writes configurations of this
// version, and has this configuration.
func surroundedNode(t *testing.T, version, config string, programs ...string) (*node, error) {
	t.Helper()
	n := newNode(t, facts(Init, surrounded))
	for _, name := range append(programs, "update-ca-certificates", "containerd") {
		body := "echo \"" + name + " $*\" >>\"$T/calls\"\n"
		if name == "containerd" {
			body = containerd(version)
		}
		n.write("bin/"+name, "#!/bin/sh\n"+body)
		if err := os.Chmod(filepath.Join(n.dir, "bin", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.write("etc/containerd/.keep", "")
	if config != "" {
		n.write("etc/containerd/config.toml", config)
	}
	n.write("etc/chrony.conf", "pool old iburst\nmakestep 1 3\n")
	n.write("usr/local/share/.keep", "")
	for _, script := range []string{"run/nova/preKubeadmCommands/000", "run/nova/postKubeadmCommands/000"} {
		text := n.read(script)
		for _, folder := range []string{"/etc/nova", "/etc/containerd/config", "/etc/fstab", "/var/lib/nova", "/etc/sysctl.d", "/home/", "/etc/chrony.conf", "/etc/systemd", "/usr/local/share", "/etc/pki", "/run/nova", "/etc/kubernetes"} {
			text = strings.ReplaceAll(text, folder, n.dir+folder)
		}
		n.write(script, text)
	}
	return n, n.boot()
}

// TestCredentialsOfMirrors sees that credentials are sent to the registry of the images
// only if that is not the public one.
func TestCredentialsOfMirrors(t *testing.T) {
	for repository, sent := range map[string]bool{"": false, "registry.k8s.io": false, "hub.corp:5000/k8s": true} {
		files := filesOf(t, render(t, facts(JoinWorker, func(in *Input) {
			in.Platform.ImageRepository = repository
			in.Platform.RegistryMirrors = []bootstrapv1.RegistryMirror{{Registry: "*", Endpoints: []string{"https://mirror.corp"}}}
			in.PlatformData.MirrorCredentials = ServerCredentials{Token: "t0ken"}
		})))
		host, _, _ := strings.Cut(repository, "/")
		if got := strings.Contains(files["/etc/containerd/certs.d/"+host+"/hosts.toml"], "Bearer t0ken"); got != sent {
			t.Errorf("%q: credentials are sent: %v, want %v", repository, got, sent)
		}
		if !strings.Contains(files["/etc/containerd/certs.d/_default/hosts.toml"], "Bearer t0ken") {
			t.Errorf("%q: the mirror gets no credentials", repository)
		}
	}
}

func TestNodeIsPrepared(t *testing.T) {
	n := prepare(t, "", "chronyd")
	if env := n.read("etc/nova/proxy.env"); !strings.Contains(env, "::1,10.77.0.105,10.77.0.10,") {
		t.Errorf("the node does not reach itself directly:\n%s", env)
	}
	if got := n.read("usr/local/share/ca-certificates/nova-proxy-01.crt"); got != certificateB {
		t.Errorf("the system's store has %q", got)
	}
	if got, want := n.read("etc/chrony.conf"), "makestep 1 3\nserver ntp1.corp iburst\nserver 10.0.0.1 iburst\n"; got != want {
		t.Errorf("chrony.conf is %q, want %q", got, want)
	}
	calls := n.read("calls")
	at := -1
	for _, call := range []string{
		"systemctl daemon-reload", "update-ca-certificates", "systemctl restart containerd", "systemctl restart chronyd",
		"kubeadm init", "kubectl apply -f " + n.dir + "/run/nova/proxy-crd.yaml", "kubectl apply -f " + n.dir + "/run/nova/proxy.yaml",
	} {
		next := strings.Index(calls, call)
		if next <= at {
			t.Errorf("%s is missing or early in\n%s", call, calls)
		}
		at = next
	}
	if n.read("run/nova/proxy.yaml") != "" {
		t.Error("the proxy's login stays behind")
	}
}

func TestNodeWithoutChrony(t *testing.T) {
	n := prepare(t, "")
	if got, want := n.read("etc/systemd/timesyncd.conf.d/90-nova.conf"), "[Time]\nNTP=ntp1.corp 10.0.0.1\n"; got != want {
		t.Errorf("timesyncd is configured with %q, want %q", got, want)
	}
}

// containerd reads the mirrors, and the rest of its configuration is unchanged.
func TestContainerdLooksForMirrors(t *testing.T) {
	const path = `  config_path = "/etc/containerd/certs.d"` + "\n"
	const old, current = `[plugins."io.containerd.grpc.v1.cri".registry]` + "\n", `[plugins."io.containerd.cri.v1.images".registry]` + "\n"
	for name, tc := range map[string]struct{ version, config, want string }{
		"Absent":            {"2", "", "version = 2\n\n" + old + path},
		"AbsentContainerd2": {"3", "", "version = 3\n\n" + current + path},
		"AbsentLater":       {"4", "", "version = 4\n\n" + current + path},
		"Version3":          {"3", "version = 3\n", "version = 3\n\n" + current + path},
		"Version4":          {"4", "version = 4\n", "version = 4\n\n" + current + path},
		"Empty": {
			"2", "version = 2\n" + old + "  config_path = \"\"\n[plugins.x]\n  config_path = \"mine\"\n",
			"version = 2\n" + old + path + "[plugins.x]\n  config_path = \"mine\"\n",
		},
		"Lacking": {
			"3", "version = 3\n  [plugins.'io.containerd.cri.v1.images'.registry]\n    [plugins.y]\n",
			"version = 3\n  [plugins.'io.containerd.cri.v1.images'.registry]\n" + path + "    [plugins.y]\n",
		},
		"ColonList": {
			"3", "version = 3\n" + current + "  config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'\n",
			"version = 3\n" + current + path,
		},
		"OfAnotherPlugin": {
			"3", "version = 3\n" + current + "[plugins.'io.containerd.transfer.v1.local']\n" + path,
			"version = 3\n" + current + path + "[plugins.'io.containerd.transfer.v1.local']\n" + path,
		},
		"There":     {"2", "version = 2\n" + old + path, "version = 2\n" + old + path},
		"Commented": {"2", "version = 2\n\t[a.registry] # ours\n\tconfig_path = \"/etc/docker\"\n", "version = 2\n\t[a.registry] # ours\n" + path},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := surroundedNode(t, tc.version, tc.config)
			if err != nil {
				t.Fatalf("%v\n%s", err, n.read("var/log/nova-bootstrap.log"))
			}
			if got := n.read("etc/containerd/config.toml"); got != tc.want {
				t.Errorf("config.toml is\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// A node whose containerd would not use the mirrors does not join: it would run
// images of other registries without an error.
func TestMirrorsAreKept(t *testing.T) {
	const kept = "[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = '/etc/containerd/certs.d'\n"
	const colons = "[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'\n"
	n := newNode(t, facts(JoinWorker, nil))
	for name, tc := range map[string]struct {
		dump, migrated string
		kept           bool
	}{
		"Kept":      {kept, "", true},
		"Migrated":  {"[plugins.\"io.containerd.cri.v1.images\".registry]\n  config_path = ''\n", kept, true},
		"ColonList": {colons, colons, false},
		"Elsewhere": {colons + "[plugins.'io.containerd.transfer.v1.local']\n  config_path = '/etc/containerd/certs.d'\n", "", false},
		"Nothing":   {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			n.write("dump", tc.dump)
			n.write("migrate", tc.migrated)
			n.write("prepare.sh", string(prepareScript)+"\nmirrored=yes\nrestart_containerd\n")
			n.command("containerd", `cat "$T/$4"`)
			n.write("calls", "")
			cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(n.dir, "prepare.sh"))
			cmd.Env = []string{"PATH=" + filepath.Join(n.dir, "bin") + ":" + os.Getenv("PATH"), "T=" + n.dir}
			out, err := cmd.CombinedOutput()
			if tc.kept != (err == nil) || tc.kept == strings.Contains(string(out), "removes the mirrors") {
				t.Errorf("err = %v\n%s", err, out)
			}
			if tc.kept != strings.Contains(n.read("calls"), "systemctl restart containerd") {
				t.Errorf("containerd is called so:\n%s", n.read("calls"))
			}
		})
	}
}
