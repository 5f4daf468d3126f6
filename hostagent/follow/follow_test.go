package follow

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	flags  = "var/lib/kubelet/kubeadm-flags.env"
	status = "/api/v1/nodes/blue-1/status"
)

// commands count their calls. The call with the number in the file fail-at fails.
var commands = map[string]string{
	"fail":        `n=$(($(cat "$T/count" 2>/dev/null || echo 0) + 1)); echo $n >"$T/count"; [ "$n" != "$(cat "$T/fail-at" 2>/dev/null)" ]`,
	"systemctl":   `"$T/bin/fail" || exit 1; case "$1" in is-active) [ "$3" = kubelet ] && [ ! -e "$T/broken" ]; exit ;; restart) [ "$2" = kubelet ] && cp "$T/` + flags + `" "$T/running-flags"; [ "$2" = containerd ] && cat "$T"/etc/containerd/conf.d/*.toml >"$T/running-snippets"; esac; echo "systemctl $*" >>"$T/calls"`,
	"sync":        `"$T/bin/fail"`,
	"sysctl":      `"$T/bin/fail" && echo sysctl >>"$T/calls"`,
	"useradd":     `"$T/bin/fail" && echo "useradd $*" >>"$T/calls"`,
	"containerd":  `echo 'version = 3'`,
	"kubeadm":     `"$T/bin/fail" && echo "kubeadm $(echo "$*" | sed "s,$T,,g")" >>"$T/calls" && cat "$T/etc/kubernetes/patches/"* >"$T/kubelet-config"`,
	"id":          `[ "$1" = -gn ] && echo "$2"; [ "$1" = -gn ]`,
	"getent":      `echo "$2:x:1000:1000::/home/$2:/bin/sh"`,
	"chown":       `:`,
	"restorecon":  `:`,
	"timedatectl": `:`,
}

// apiServer is an API server with a Node and the Secret with its settings.
type apiServer struct {
	*agenttest.Server
	t          *testing.T
	lock       sync.Mutex
	secret     []byte
	denied     bool
	conditions []map[string]any
	// version is that of kubeadm's stored configuration.
	version string
	// requests are certificate requests; nil if the node may make none.
	requests *agenttest.Requests
	// annotations returns the annotations of the pod of a component.
	annotations func(component string) map[string]any
	// pods are those of the Node. evicted are the names of those that were.
	pods    []corev1.Pod
	evicted []string
	// budget lets no pod be evicted.
	budget bool
	// kubelet returns the version that the kubelet has reported.
	kubelet func() string
	// capacity returns the hardware that the kubelet reports.
	capacity func() map[string]any
	// broken is the component whose pod is not ready.
	broken  string
	labels  map[string]any
	patches int
	// watches lasts until the client ends it. unlabeled refuses labels.
	watches, unlabeled bool
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.requests != nil && s.requests.Serve(w, r) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/nova-nodes/secrets":
		if r.URL.Query().Get("fieldSelector") != "metadata.name=nova-node-blue-1" {
			s.t.Errorf("the kubelet may not send %s", r.URL)
		}
		if s.denied {
			agenttest.Fail(w, http.StatusForbidden, "Forbidden")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if s.secret != nil {
			//nolint:errchkjson // the settings are bytes
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": map[string]any{
				"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"name": "nova-node-blue-1"}, "data": map[string]any{"settings": s.secret},
			}})
		}
		if s.watches {
			_ = http.NewResponseController(w).Flush()
			s.lock.Unlock()
			<-r.Context().Done()
			s.lock.Lock()
		}
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes/blue-1":
		info := map[string]any{}
		conditions := s.conditions
		if s.kubelet != nil {
			info["kubeletVersion"] = s.kubelet()
			conditions = append(slices.Clone(conditions), map[string]any{"type": "Ready", "status": "True"})
		}
		agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "Node", "apiVersion": "v1", "status": map[string]any{"conditions": conditions, "nodeInfo": info, "capacity": s.capacity()}})
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/kube-system/configmaps/kubeadm-config":
		agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "data": map[string]any{
			"ClusterConfiguration": "networking:\n  kubernetesVersion: v0\nkubernetesVersion: " + s.version + "\n",
		}})
	case r.Method == http.MethodGet && r.URL.Path == "/readyz":
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/kube-system/pods/") && strings.HasSuffix(r.URL.Path, "-blue-1"):
		ready := "True"
		if s.broken != "" && strings.Contains(r.URL.Path, s.broken) {
			ready = "False"
		}
		component := strings.TrimSuffix(path.Base(r.URL.Path), "-blue-1")
		agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"annotations": s.annotations(component)}, "status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}}})
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=blue-1":
		agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": s.pods})
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction"):
		s.evict(w, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/eviction"), string(body))
	case s.unlabeled && r.Method == http.MethodPatch && r.URL.Path != status:
		agenttest.Fail(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	case r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/blue-1"):
		var patch struct {
			Metadata struct{ Labels map[string]any }
			Status   struct{ Conditions []map[string]any }
		}
		if err := json.Unmarshal(body, &patch); err != nil || r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" {
			s.t.Errorf("patch %s: %v", body, err)
		}
		s.patches++
		if r.URL.Path == status {
			s.conditions = patch.Status.Conditions
		} else {
			s.labels = patch.Metadata.Labels
		}
		agenttest.Respond(w, http.StatusOK, map[string]any{"kind": "Node", "apiVersion": "v1"})
	default:
		s.t.Errorf("the kubelet may not send %s %s", r.Method, r.URL)
		agenttest.Fail(w, http.StatusForbidden, "Forbidden")
	}
}

// evict evicts a pod.
func (s *apiServer) evict(w http.ResponseWriter, path, body string) {
	if s.budget {
		agenttest.Fail(w, http.StatusTooManyRequests, "TooManyRequests")
		return
	}
	s.pods = slices.DeleteFunc(s.pods, func(p corev1.Pod) bool {
		is := p.Namespace+"/pods/"+p.Name == path
		if is && !strings.Contains(body, string(p.UID)) {
			s.t.Errorf("a later pod of this name is not protected: %s", body)
		}
		return is
	})
	s.evicted = append(s.evicted, strings.ReplaceAll(path, "/pods/", "/"))
	agenttest.Respond(w, http.StatusCreated, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

// condition returns status, reason and message of the Node's condition.
func (s *apiServer) condition() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.conditions) != 1 {
		return fmt.Sprintf("%d conditions", len(s.conditions))
	}
	c := s.conditions[0]
	return fmt.Sprintf("%s %s %s", c["status"], c["reason"], c["message"])
}

func (s *apiServer) want(settings *nodeconfig.Settings) (revision string) {
	s.t.Helper()
	packed, revision, err := settings.Pack()
	if err != nil {
		s.t.Fatal(err)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.secret = packed
	return revision
}

// booted are the settings of the first boot.
func booted() *nodeconfig.Settings {
	return &nodeconfig.Settings{
		Node: "blue-1",
		Machine: nodeconfig.Machine{
			Sysctls:  []nodeconfig.Setting{{Name: "vm.swappiness", Value: "1"}},
			Snippets: true,
			Files: []nodeconfig.File{
				{Path: "/etc/motd", Mode: "0644", Text: "first\n"},
				{Path: "/etc/kept", Mode: "0644", Text: "kept\n"},
				{Path: "/etc/containerd/conf.d/nova-a.toml", Mode: "0600", Text: "a = 1\n"},
				{Path: "/etc/kubernetes/patches/kubeletconfiguration+merge.json", Mode: "0600", Text: "{\"maxPods\":100}\n"},
			},
		},
		Kubelet: nodeconfig.Kubelet{Args: []nodeconfig.Setting{
			{Name: "node-ip", Value: nodeconfig.NodeIP}, {Name: "provider-id", Value: nodeconfig.ProviderID},
			{Name: "node-labels", Value: "disk=fast,rack=r1"}, {Name: "v", Value: "2"},
		}},
	}
}

// changedSettings change a part of each kind.
func changedSettings() *nodeconfig.Settings {
	s := booted()
	s.Machine.Sysctls[0].Value = "10"
	s.Machine.Files[0].Text = "second\n"
	s.Machine.Files[2].Text = "a = 2\n"
	s.Machine.Files[3].Text = "{\"maxPods\":200}\n"
	s.Machine.Users = []nodeconfig.User{{Name: "ops", Shell: "/bin/sh"}}
	s.Kubelet.Args[2].Value = "disk=slow,row=3"
	s.Kubelet.Args[3] = nodeconfig.Setting{Name: "max-open-files", Value: "5000"}
	return s
}

func start(t *testing.T) (*agenttest.Machine, *apiServer) {
	t.Helper()
	server := &apiServer{t: t, version: "v1.36.3", conditions: []map[string]any{}}
	server.Server = agenttest.NewServer(t, server.serve)
	n := agenttest.New(t, commands)
	n.Put("etc/kubernetes/kubelet.conf", server.Kubeconfig())
	n.Put("etc/systemd/system/.keep", "")
	for _, name := range components {
		n.Put("etc/kubernetes/manifests/"+name+".yaml", "first\n")
	}
	server.annotations = func(string) map[string]any { return nil }
	server.capacity = func() map[string]any { return map[string]any{"cpu": "2", "memory": "1000000Ki"} }
	n.Put(flags, `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=10.0.0.5 --node-labels=disk=fast,rack=r1 --provider-id=vsphere://4237 --v=2"`+"\n")
	settings := booted()
	for _, f := range settings.Machine.Files {
		n.Put(f.Path, f.Text)
	}
	node := Node{Name: "blue-1", Addresses: "10.0.0.5", ProviderID: "vsphere://4237"}
	if err := Start(t.Context(), n.Machine, node, settings); err != nil {
		t.Fatal(err)
	}
	n.Put("calls", "")
	n.Put("count", "0")
	return n, server
}

// followOnce runs the service until a watch ends.
func followOnce(t *testing.T, n *agenttest.Machine) error {
	t.Helper()
	r, err := load(n.Machine)
	if err != nil {
		t.Fatal(err)
	}
	return (&follower{m: n.Machine, record: r}).once(t.Context())
}

func TestServiceStarts(t *testing.T) {
	n, server := start(t)
	if unit := n.Get("etc/systemd/system/nova-host-agent.service"); !strings.Contains(unit, " follow\n") || strings.Contains(unit, "__") {
		t.Errorf("unit: %s", unit)
	}
	if info, err := os.Stat(n.Dir(recordFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record contains the content of files that only root may read: %v, %v", info, err)
	}
	for range 2 {
		if err := followOnce(t, n); err != nil {
			t.Fatal(err)
		}
	}
	if got := server.condition(); got != "True Applied Revision first-boot: the settings are applied" || server.patches != 1 {
		t.Errorf("%s, %d patches", got, server.patches)
	}
	if calls := n.Get("calls"); calls != "" {
		t.Errorf("a node without changes runs %s", calls)
	}
}

// All kinds of settings change, and nothing else is touched.
func TestSettingsChange(t *testing.T) {
	n, server := start(t)
	before, err := os.Stat(n.Dir("etc/kept"))
	if err != nil {
		t.Fatal(err)
	}
	revision := server.want(changedSettings())
	for range 2 { // the second watch sends the same settings
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
	}
	checkChanged(t, n, server)
	if after, err := os.Stat(n.Dir("etc/kept")); err != nil || !os.SameFile(before, after) {
		t.Errorf("a file that did not change was written: %v", err)
	}
	const want = `sysctl
useradd -m -s /bin/sh ops
systemctl restart containerd
kubeadm upgrade node phase kubelet-config --kubeconfig /etc/kubernetes/kubelet.conf --patches /etc/kubernetes/patches
systemctl daemon-reload
systemctl restart kubelet
`
	if calls := n.Get("calls"); calls != want {
		t.Errorf("calls:\n%s\nwant:\n%s", calls, want)
	}
	if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
		t.Error(got)
	}
	if n.Waits(time.Second) != 15 {
		t.Errorf("the kubelet was watched for %d s", n.Waits(time.Second))
	}
}

func checkChanged(t *testing.T, n *agenttest.Machine, server *apiServer) {
	t.Helper()
	const args = `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=10.0.0.5 --provider-id=vsphere://4237 --node-labels=disk=slow,row=3 --max-open-files=5000"` + "\n"
	for path, want := range map[string]string{
		"etc/motd": "second\n", "etc/kept": "kept\n", "etc/sysctl.d/90-nova.conf": "vm.swappiness = 10\n",
		"running-snippets": "a = 2\n", "kubelet-config": "{\"maxPods\":200}\n", flags: args, "running-flags": args,
	} {
		if got := n.Get(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got := fmt.Sprint(server.labels); got != "map[disk:slow rack:<nil> row:3]" {
		t.Errorf("labels: %s", got)
	}
}

// Whichever command is the last one before a reset, the next start completes the
// change, and the services run with the new settings.
func TestChangeContinuesAfterAReset(t *testing.T) {
	failAtEach(t, 20, start, changedSettings, followOnce, func(t *testing.T, n *agenttest.Machine, server *apiServer, revision string) {
		t.Helper()
		checkChanged(t, n, server)
		if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
			t.Error(got)
		}
	})
}

// failAtEach applies settings once for each command of a change, of which there are at
// least some: that command fails, and then the settings are applied again.
func failAtEach(t *testing.T, commands int, start func(*testing.T) (*agenttest.Machine, *apiServer), settings func() *nodeconfig.Settings,
	apply func(*testing.T, *agenttest.Machine) error, check func(t *testing.T, n *agenttest.Machine, server *apiServer, revision string),
) {
	t.Helper()
	n, server := start(t)
	server.want(settings())
	if err := apply(t, n); err != nil {
		t.Fatal(err)
	}
	var total int
	if _, err := fmt.Sscan(n.Get("count"), &total); err != nil || total < commands {
		t.Fatalf("%d commands: %v", total, err)
	}
	for at := 1; at <= total; at++ {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			n, server := start(t)
			revision := server.want(settings())
			n.Put("fail-at", strconv.Itoa(at))
			_ = apply(t, n)
			n.Put("fail-at", "never")
			if err := apply(t, n); err != nil {
				t.Fatalf("%v\n%s", err, n.Log)
			}
			check(t, n, server, revision)
		})
	}
}

// Other settings may follow a change that failed: a file of that change alone is
// removed.
func TestChangeAfterAFailedOne(t *testing.T) {
	n, server := start(t)
	broken := changedSettings()
	broken.Machine.Files = append(broken.Machine.Files, nodeconfig.File{Path: "/etc/broken", Mode: "0644", Text: "x"})
	revision := server.want(broken)
	n.Put("broken", "")
	if err := followOnce(t, n); err == nil {
		t.Fatal("the kubelet did not start")
	}
	const want = ": changing kubelet: the kubelet does not start with these settings; see journalctl -u kubelet on the node"
	if got := server.condition(); got != "False StepFailed Revision "+revision+want {
		t.Error(got)
	}
	if !n.There("etc/broken") {
		t.Fatal("the file was not written")
	}
	if err := os.Remove(n.Dir("broken")); err != nil {
		t.Fatal(err)
	}
	revision = server.want(booted())
	if err := followOnce(t, n); err != nil {
		t.Fatalf("%v\n%s", err, n.Log)
	}
	if n.There("etc/broken") || n.Get("etc/motd") != "first\n" || !strings.Contains(n.Get("running-flags"), "--v=2") || strings.Contains(n.Get("running-flags"), "5000") {
		t.Errorf("the failed change was not reverted: %s, %s", n.Get("etc/motd"), n.Get("running-flags"))
	}
	if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
		t.Error(got)
	}
}

// A change that failed is not repeated at once, because each attempt restarts
// services. Other settings are applied at once.
func TestFailedChangeIsDelayed(t *testing.T) {
	n, server := start(t)
	revision := server.want(changedSettings())
	n.Put("broken", "")
	r, err := load(n.Machine)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{m: n.Machine, record: r}
	restarts := func() int { return strings.Count(n.Get("calls"), "systemctl restart kubelet\n") }
	for attempts, delay := range []time.Duration{3 * time.Minute, 6 * time.Minute, 12 * time.Minute, 24 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		if err := f.once(t.Context()); err == nil || restarts() != attempts+1 {
			t.Fatalf("attempt %d: %d restarts, err = %v", attempts+1, restarts(), err)
		}
		if err := n.Sleep(t.Context(), delay-time.Second); err != nil {
			t.Fatal(err)
		}
		if err := f.once(t.Context()); err != nil || restarts() != attempts+1 {
			t.Fatalf("after attempt %d: %d restarts, err = %v", attempts+1, restarts(), err)
		}
		if got := server.condition(); !strings.HasPrefix(got, "False StepFailed Revision "+revision+": changing kubelet") {
			t.Error(got)
		}
		if err := n.Sleep(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(n.Dir("broken")); err != nil {
		t.Fatal(err)
	}
	if err := f.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Put("broken", "")
	server.want(booted())
	if err := f.once(t.Context()); err == nil {
		t.Fatal("the kubelet did not start")
	}
	if err := os.Remove(n.Dir("broken")); err != nil {
		t.Fatal(err)
	}
	other := booted()
	other.Machine.Files[0].Text = "third\n"
	revision = server.want(other)
	if err := f.once(t.Context()); err != nil || server.condition() != "True Applied Revision "+revision+": the settings are applied" {
		t.Errorf("%s, err = %v", server.condition(), err)
	}
}

// A watch lasts longer than the delay. It ends when the change is repeated, and the
// change may take longer.
func TestFailedChangeIsRepeatedInTime(t *testing.T) {
	n, server := start(t)
	revision := server.want(changedSettings())
	r, err := load(n.Machine)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{m: n.Machine, record: r, failed: failure{id: revision, text: "it failed", next: n.Now().Add(time.Second)}}
	server.watches = true
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := f.once(ctx); err != nil || ctx.Err() != nil || server.condition() != "False StepFailed Revision "+revision+": it failed" {
		t.Fatalf("%s, err = %v, %v", server.condition(), err, ctx.Err())
	}
	server.watches = false
	if err := n.Sleep(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if err := f.once(ctx); err != nil || server.condition() != "True Applied Revision "+revision+": the settings are applied" {
		t.Errorf("%s, err = %v", server.condition(), err)
	}
}

// A failure to label the Node restarts no service, and is repeated soon.
func TestLabelsAreFirst(t *testing.T) {
	n, server := start(t)
	revision := server.want(changedSettings())
	r, err := load(n.Machine)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{m: n.Machine, record: r}
	server.unlabeled = true
	if err := f.once(t.Context()); err == nil || n.Get("calls") != "" || !strings.HasPrefix(server.condition(), "False StepFailed Revision "+revision+": changing labels: labeling the Node") {
		t.Fatalf("%s, calls %q, err = %v", server.condition(), n.Get("calls"), err)
	}
	server.unlabeled = false
	if err := f.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkChanged(t, n, server)
}

// Settings that the agent cannot read or apply change nothing.
func TestSettingsAreRejected(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*nodeconfig.Settings)
		raw    []byte
		want   string
	}{
		"Disks": {change: func(s *nodeconfig.Settings) {
			s.Machine.Disks = []nodeconfig.Mount{{Path: "/x"}}
			s.Machine.SwapMiB = 5
		}, want: "a running machine cannot change its disks, swap"},
		"OtherNode": {change: func(s *nodeconfig.Settings) { s.Node = "blue-2" }, want: `the settings are for node "blue-2"`},
		"NoGzip":    {raw: []byte("x"), want: "reading the node's settings"},
		// Agents of another version would leave out settings that they do not know, and
		// report the settings as applied.
		"Version": {raw: zipped(t, `{"version":1,"node":"blue-1"}`), want: "the format of the node's settings has version 1, this host agent reads version 2"},
	} {
		t.Run(name, func(t *testing.T) {
			n, server := start(t)
			settings := changedSettings()
			if tc.change != nil {
				tc.change(settings)
			}
			server.want(settings)
			if tc.raw != nil {
				server.secret = tc.raw
			}
			if err := followOnce(t, n); err != nil {
				t.Fatal(err)
			}
			if got := server.condition(); !strings.HasPrefix(got, "False Rejected Revision ") || !strings.Contains(got, tc.want) {
				t.Error(got)
			}
			if n.Get("calls") != "" || n.Get("etc/motd") != "first\n" {
				t.Errorf("rejected settings were applied: %s", n.Get("calls"))
			}
		})
	}
}

// zipped returns a text as the manager stores it.
func zipped(t *testing.T, text string) []byte {
	t.Helper()
	out := &bytes.Buffer{}
	writer := gzip.NewWriter(out)
	_, err := writer.Write([]byte(text))
	if err = errors.Join(err, writer.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Until the manager has given the permission, the agent tries again.
func TestPermissionIsAwaited(t *testing.T) {
	n, server := start(t)
	server.denied = true
	if err := followOnce(t, n); err == nil || !strings.Contains(err.Error(), "watching Secret nova-nodes/nova-node-blue-1") {
		t.Errorf("err = %v", err)
	}
}

// An argument that kubeadm set stays, and the file of another program is not
// replaced.
func TestKubeletArguments(t *testing.T) {
	n := agenttest.New(t, nil)
	n.Put(flags, "KUBELET_EXTRA_ARGS=--x\n")
	err := setArgs(n.Machine, nil, []nodeconfig.Setting{{Name: "v", Value: "1"}})
	if err == nil || !strings.Contains(err.Error(), "is not as kubeadm writes it") || n.Get(flags) != "KUBELET_EXTRA_ARGS=--x\n" {
		t.Errorf("err = %v, file %q", err, n.Get(flags))
	}
	node := Node{Addresses: "10.0.0.5"}
	s := booted()
	node.fill(s)
	if slices.ContainsFunc(s.Kubelet.Args, func(a nodeconfig.Setting) bool { return a.Name == "provider-id" }) || s.Kubelet.Args[0].Value != "10.0.0.5" {
		t.Errorf("arguments %v", s.Kubelet.Args)
	}
}

// A control plane node changes its components with kubeadm, which reads their
// settings from the cluster.
func TestComponentsChange(t *testing.T) {
	const (
		phase   = "kubeadm upgrade node phase control-plane --etcd-upgrade=false --certificate-renewal=false --patches /etc/kubernetes/patches\n"
		patch   = "/etc/kubernetes/patches/kube-apiserver+merge.json"
		kubelet = "kubeadm upgrade node phase kubelet-config"
	)
	for name, tc := range map[string]struct {
		change func(*nodeconfig.Settings)
		want   int
	}{
		"Argument": {func(s *nodeconfig.Settings) { s.Components = "2" }, 1},
		"Patch": {func(s *nodeconfig.Settings) {
			s.Machine.Files = append(s.Machine.Files, nodeconfig.File{Path: patch, Mode: "0600", Text: "{}"})
		}, 1},
		"File":   {func(s *nodeconfig.Settings) { s.Machine.Files[0].Text = "x" }, 0},
		"Worker": {func(s *nodeconfig.Settings) { s.Components, s.Machine.Files[0].Text = "", "x" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n, server := start(t)
			r, err := load(n.Machine)
			if err != nil {
				t.Fatal(err)
			}
			r.Applied.Settings.Components = "1"
			is := booted()
			is.Components, is.ComponentsVersion = "1", "v1.36.3"
			tc.change(is)
			server.want(is)
			if err := (&follower{m: n.Machine, record: r}).once(t.Context()); err != nil {
				t.Fatal(err)
			}
			calls := n.Get("calls")
			if strings.Count(calls, phase) != tc.want || strings.Contains(calls, kubelet) || strings.Contains(calls, "restart kubelet") {
				t.Errorf("calls:\n%s", calls)
			}
		})
	}
}

// kubeadm ends without an error if the manifests are those that it would write. So a
// change that was interrupted begins from the former manifests, and ends only if
// the components are ready.
func TestComponentsAreRestored(t *testing.T) {
	const manifests = "etc/kubernetes/manifests/"
	for name, tc := range map[string]struct {
		// kubeadm is what its process does, and broken the component that is not
		// ready afterwards.
		kubeadm, broken string
		want, manifest  string
	}{
		"Ready":    {kubeadm: `echo second >"$T/` + manifests + `kube-apiserver.yaml"`, want: "True Applied", manifest: "second\n"},
		"Fails":    {kubeadm: `echo second >"$T/` + manifests + `kube-apiserver.yaml"; exit 1`, want: "False StepFailed", manifest: "first\n"},
		"NotReady": {kubeadm: `echo second >"$T/` + manifests + `kube-scheduler.yaml"`, broken: "scheduler", want: "False StepFailed", manifest: "first\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n, server := start(t)
			// An interrupted process has left other manifests.
			r, err := load(n.Machine)
			if err != nil {
				t.Fatal(err)
			}
			r.Applied.Settings.Components = "1"
			if err := keepManifests(t.Context(), n.Machine); err != nil {
				t.Fatal(err)
			}
			n.Put(manifests+"kube-apiserver.yaml", "second\n")
			n.Command("kubeadm", `cat "$T/`+manifests+`kube-apiserver.yaml" >"$T/found"; `+tc.kubeadm)
			is := booted()
			is.Components, is.ComponentsVersion = "2", "v1.36.3"
			server.want(is)
			server.broken = tc.broken
			_ = (&follower{m: n.Machine, record: r}).once(t.Context())
			if got := server.condition(); !strings.HasPrefix(got, tc.want) {
				t.Error(got)
			}
			if n.Get("found") != "first\n" {
				t.Errorf("kubeadm has found %q", n.Get("found"))
			}
			if got := n.Get(manifests + "kube-apiserver.yaml"); got != tc.manifest || n.Get(manifests+"kube-controller-manager.yaml") != "first\n" {
				t.Errorf("the manifest is %q", got)
			}
			if tc.broken != "" && n.Get(manifests+"kube-scheduler.yaml") != "first\n" {
				t.Error("the manifest of the broken component stays")
			}
			if n.There(strings.TrimPrefix(keptDir, "/")) {
				t.Error("the copies of the manifests stay")
			}
		})
	}
}

// Without restored manifests the API server of the node may never start again.
func TestComponentsAreRestoredWithoutAPIServer(t *testing.T) {
	n, server := start(t)
	server.Close()
	if err := keepManifests(t.Context(), n.Machine); err != nil {
		t.Fatal(err)
	}
	n.Put("etc/kubernetes/manifests/kube-apiserver.yaml", "second\n")
	if err := followOnce(t, n); err == nil {
		t.Fatal("no error without an API server")
	}
	if got := n.Get("etc/kubernetes/manifests/kube-apiserver.yaml"); got != "first\n" {
		t.Errorf("the manifest is %q", got)
	}
}

// kubeadm deploys the version in its stored configuration, also that of an upgrade
// that began after the settings were stored.
func TestComponentsKeepTheirVersion(t *testing.T) {
	n, server := start(t)
	server.version = "v1.37.0"
	is := booted()
	is.Components, is.ComponentsVersion = "2", "v1.36.3"
	server.want(is)
	if err := followOnce(t, n); err == nil || !strings.Contains(server.condition(), "kubeadm would deploy version v1.37.0 instead of v1.36.3") {
		t.Errorf("%s, err = %v", server.condition(), err)
	}
	if calls := n.Get("calls"); strings.Contains(calls, "kubeadm") {
		t.Errorf("calls:\n%s", calls)
	}
}
