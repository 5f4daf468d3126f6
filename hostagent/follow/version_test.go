package follow

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	olderVersion = "v1.36.3"
	newerVersion = "v1.37.0"
	kubeletFile  = "var/lib/kubelet/config.yaml"
)

// program returns a program of a version. kubeadm writes its version to the
// configuration of the kubelet, and on a control plane node to the manifests.
func program(name, version string) string {
	text := "#!/bin/sh\n\"$T/bin/fail\" || exit 1\ncase \"$1\" in *version) echo \"Kubernetes " + version + "\"; exit ;; esac\n"
	if name == "kubeadm" {
		text += `case "$*" in *"phase preflight"*) [ ! -e "$T/unfit" ] || exit 1 ;; esac
echo "kubeadm $(echo "$*" | sed "s,$T,,g")" >>"$T/calls"
case "$*" in
*"phase preflight"*) exit ;;
init*) cp "$T/etcd-` + version + `" "$KUBEADM_INIT_DRYRUN_DIR/etcd.yaml"; exit ;;
esac
[ ! -e "$T/refused" ] || exit 1
echo ` + version + ` >"$T/` + kubeletFile + `"
[ -e "$T/etcd-` + version + `" ] || exit 0
cp "$T/running" "$T/kubelet-before"
for name in ` + strings.Join(components, " ") + `; do echo ` + version + ` >"$T/etc/kubernetes/manifests/$name.yaml"; done
`
	}
	return text
}

// startOlder returns a worker with the older version, and settings with the newer
// one. Its kubelet runs with the program at its last restart.
func startOlder(t *testing.T) (*agenttest.Machine, *apiServer, *nodeconfig.Settings) {
	t.Helper()
	n, server := start(t)
	server.version = newerVersion
	n.Command("systemctl", `"$T/bin/fail" || exit 1; case "$1" in is-active) [ ! -e "$T/broken" ]; exit ;; restart) [ "$2" = kubelet ] && "$T/bin/kubelet" --version >"$T/running" && cp "$T/`+kubeletFile+`" "$T/running-config"; esac; echo "systemctl $*" >>"$T/calls"`)
	n.Put(kubeletFile, olderVersion+"\n")
	n.Put("running", "Kubernetes "+olderVersion+"\n")
	server.kubelet = func() string { return strings.TrimPrefix(strings.TrimSpace(n.Get("running")), "Kubernetes ") }
	is := booted()
	is.Kubernetes.Version = newerVersion
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(program(strings.TrimPrefix(r.URL.Path, "/"), newerVersion)))
	}))
	t.Cleanup(files.Close)
	for _, p := range programs {
		n.Program("bin/"+p.name, program(p.name, olderVersion))
		sum := sha256.Sum256([]byte(program(p.name, newerVersion)))
		is.Kubernetes.Programs = append(is.Kubernetes.Programs, nodeconfig.Program{Name: p.name, URL: files.URL + "/" + p.name, SHA256: hex.EncodeToString(sum[:])})
	}
	return n, server, is
}

// checkVersion requires that all parts of the machine have a version, and that
// nothing of a change is left.
func checkVersion(t *testing.T, n *agenttest.Machine, version string) {
	t.Helper()
	for _, p := range programs {
		if got := n.Get("bin/" + p.name); got != program(p.name, version) {
			t.Errorf("%s:\n%s", p.name, got)
		}
	}
	for path, want := range map[string]string{kubeletFile: version, "running": "Kubernetes " + version} {
		if got := strings.TrimSpace(n.Get(path)); got != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	for _, folder := range []string{formerDir, formerDir + partSuffix} {
		if n.There(strings.TrimPrefix(folder, "/")) {
			t.Errorf("%s stays", folder)
		}
	}
}

func TestVersionChanges(t *testing.T) {
	n, server, is := startOlder(t)
	server.version = "v1.38.0" // the control plane is ahead of its workers
	is.Kubernetes.IgnorePreflightErrors = []string{"Mem", "Swap"}
	revision := server.want(is)
	for range 2 {
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
	}
	checkVersion(t, n, newerVersion)
	if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
		t.Error(got)
	}
	const want = "kubeadm upgrade node --kubeconfig /etc/kubernetes/kubelet.conf --ignore-preflight-errors Mem,Swap --patches /etc/kubernetes/patches\nsystemctl daemon-reload\nsystemctl restart kubelet\n"
	if calls := n.Get("calls"); calls != want {
		t.Errorf("calls:\n%s", calls)
	}
	if info, err := os.Stat(n.Dir("bin/kubelet")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Without the programs nothing is changed, also no file.
func TestVersionWithoutPrograms(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*agenttest.Machine, *apiServer, *nodeconfig.Settings)
		want   string
	}{
		"NoDownload": {func(_ *agenttest.Machine, _ *apiServer, s *nodeconfig.Settings) { s.Kubernetes.Programs = nil }, "the platform has no download of kubeadm"},
		"NoKubectl": {func(_ *agenttest.Machine, _ *apiServer, s *nodeconfig.Settings) {
			s.Kubernetes.Programs = s.Kubernetes.Programs[:2]
		}, "the platform has no download of kubectl"},
		"OtherHash": {func(_ *agenttest.Machine, _ *apiServer, s *nodeconfig.Settings) {
			s.Kubernetes.Programs[1].SHA256 = "ab"
		}, "kubelet v1.37.0 has another SHA-256 than ab"},
		"ReadOnly": {func(n *agenttest.Machine, _ *apiServer, _ *nodeconfig.Settings) { n.Put("bin/.nova-kubelet/x", "") }, "kubelet v1.37.0 cannot be downloaded"},
		"ControlPlane": {func(_ *agenttest.Machine, a *apiServer, s *nodeconfig.Settings) {
			a.version, s.Components = "v1.37.1", "1"
		}, "the control plane has version v1.37.1"},
		"Unfit": {func(n *agenttest.Machine, _ *apiServer, s *nodeconfig.Settings) {
			s.Components = "1"
			n.Put("unfit", "")
		}, "running .nova-kubeadm: exit status 1"},
		"TooEarly":  {func(_ *agenttest.Machine, a *apiServer, _ *nodeconfig.Settings) { a.version = olderVersion }, "the control plane has version v1.36.3"},
		"Malformed": {func(_ *agenttest.Machine, a *apiServer, _ *nodeconfig.Settings) { a.version = "none" }, "reading version: "},
		"OtherVersion": {func(_ *agenttest.Machine, a *apiServer, s *nodeconfig.Settings) {
			a.version, s.Kubernetes.Version = "v1.37.1", "v1.37.1"
		}, "kubeadm is not version v1.37.1"},
	} {
		t.Run(name, func(t *testing.T) {
			n, server, is := startOlder(t)
			is.Machine.Files[0].Text = "second\n"
			tc.change(n, server, is)
			revision := server.want(is)
			if err := followOnce(t, n); err == nil {
				t.Fatal("no error")
			}
			if got, want := server.condition(), "False StepFailed Revision "+revision+": getting Kubernetes "+is.Kubernetes.Version+": "+tc.want; !strings.HasPrefix(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
			checkVersion(t, n, olderVersion)
			if n.There("bin/.nova-kubeadm") || n.There("bin/.nova-kubelet") || n.There("bin/.nova-kubectl") {
				t.Error("downloads stay")
			}
			if n.Get("etc/motd") != "first\n" || n.Get("calls") != "" {
				t.Errorf("something was changed: %s", n.Get("calls"))
			}
		})
	}
}

// A node that does not become ready gets its former programs back.
func TestVersionIsRestored(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*agenttest.Machine, *apiServer)
		want   string
	}{
		"Kubeadm":  {func(n *agenttest.Machine, _ *apiServer) { n.Put("refused", "") }, "running kubeadm: exit status 1"},
		"NotReady": {func(_ *agenttest.Machine, s *apiServer) { s.kubelet = func() string { return olderVersion } }, `the kubelet has reported version "v1.36.3", not v1.37.0`},
	} {
		t.Run(name, func(t *testing.T) {
			n, server, is := startOlder(t)
			tc.change(n, server)
			revision := server.want(is)
			if err := followOnce(t, n); err == nil {
				t.Fatal("no error")
			}
			if got, want := server.condition(), "False StepFailed Revision "+revision+": changing to Kubernetes v1.37.0: "+tc.want; !strings.HasPrefix(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
			checkVersion(t, n, olderVersion)
			if got := strings.TrimSpace(n.Get("running-config")); got != olderVersion {
				t.Errorf("the kubelet runs with the configuration of %s", got)
			}
		})
	}
}

// A kubelet may reject an argument that another version requires: both change at once.
func TestVersionChangesWithArguments(t *testing.T) {
	n, server, is := startOlder(t)
	is.Kubelet.Args[3] = nodeconfig.Setting{Name: "max-open-files", Value: "5000"}
	revision := server.want(is)
	n.Command("systemctl", `"$T/bin/fail" || exit 1; case "$1" in
		is-active) [ ! -e "$T/broken" ]; exit ;;
		restart) rm -f "$T/broken"; "$T/bin/kubelet" --version >"$T/running"; cp "$T/`+flags+`" "$T/running-flags"
			if grep -q `+newerVersion+` "$T/running"; then grep -q max-open-files "$T/running-flags"; else grep -q -e --v=2 "$T/running-flags"; fi || touch "$T/broken" ;;
	esac`)
	if err := followOnce(t, n); err != nil {
		t.Fatalf("%v\n%s", err, n.Log)
	}
	checkVersion(t, n, newerVersion)
	if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
		t.Error(got)
	}
	if got := n.Get("running-flags"); !strings.Contains(got, "--max-open-files=5000") || strings.Contains(got, "--v=2") {
		t.Errorf("the kubelet runs with %s", got)
	}
}

// Whichever command is the last one before a reset, the next start completes the
// change.
func TestVersionContinuesAfterAReset(t *testing.T) {
	var is *nodeconfig.Settings
	begin := func(t *testing.T) (*agenttest.Machine, *apiServer) {
		t.Helper()
		n, server, newer := startOlder(t)
		is = newer
		return n, server
	}
	failAtEach(t, 20, begin, func() *nodeconfig.Settings { return is }, followOnce, func(t *testing.T, n *agenttest.Machine, server *apiServer, revision string) {
		t.Helper()
		checkVersion(t, n, newerVersion)
		if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
			t.Error(got)
		}
	})
}

// The settings may be others when the agent starts after a reset in the middle of a
// change: without a version, the former one is restored.
func TestVersionIsRestoredAfterAReset(t *testing.T) {
	n, server, is := startOlder(t)
	r, err := load(n.Machine)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{m: n.Machine, record: r}
	server.want(booted())
	if err := f.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := fetchVersion(t.Context(), n.Machine, f.client, is)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	former := []*nodeconfig.Settings{booted()}
	if err := u.replace(t.Context(), former, is); err != nil {
		t.Fatal(err)
	}
	if err := followOnce(t, n); err != nil {
		t.Fatal(err)
	}
	checkVersion(t, n, olderVersion)
}
