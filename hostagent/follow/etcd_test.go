package follow

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const etcdFile = "etc/kubernetes/manifests/etcd.yaml"

// member returns a manifest of etcd.
func member(image, initial, option string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/etcd.advertise-client-urls: https://10.0.0.5:2379
  name: etcd
spec:
  containers:
  - command:
    - etcd
    - --initial-cluster=%s
    - --option=%s
    image: registry.k8s.io/etcd:%s
`, initial, option, image)
}

// startPlane returns a control plane node with the older version, and settings with
// the newer one, whose kubeadm makes a manifest of etcd.
func startPlane(t *testing.T, manifest string) (*agenttest.Machine, *apiServer, *nodeconfig.Settings) {
	t.Helper()
	n, server, is := startOlder(t)
	r, err := load(n.Machine)
	if err != nil {
		t.Fatal(err)
	}
	r.Applied.Settings.Components, r.Applied.Settings.ComponentsVersion = "1", olderVersion
	if err := r.save(t.Context(), n.Machine); err != nil {
		t.Fatal(err)
	}
	is.Components, is.ComponentsVersion = "2", newerVersion
	is.Kubernetes.IgnorePreflightErrors = []string{"Mem", "Swap"}
	for _, name := range components {
		n.Put("etc/kubernetes/manifests/"+name+".yaml", olderVersion+"\n")
	}
	n.Put(etcdFile, member("3.6.6-0", "blue-1=https://10.0.0.5:2380,blue-2=https://10.0.0.6:2380", "5s"))
	n.Put("etcd-"+newerVersion, manifest)
	n.Put("count", "0")
	server.annotations = func(component string) map[string]any {
		p := pod{}
		if err := yaml.Unmarshal([]byte(n.Get("etc/kubernetes/manifests/"+component+".yaml")), &p); err != nil {
			return nil
		}
		return map[string]any{changedAnnotation: p.annotation(changedAnnotation)}
	}
	return n, server, is
}

// checkPlane requires that the components have a version, and etcd an image.
func checkPlane(t *testing.T, n *agenttest.Machine, version, image string) {
	t.Helper()
	checkVersion(t, n, version)
	for _, name := range components {
		if got := n.Get("etc/kubernetes/manifests/" + name + ".yaml"); got != version+"\n" {
			t.Errorf("%s has %q", name, got)
		}
	}
	if got := n.Get(etcdFile); !strings.Contains(got, "/etcd:"+image+"\n") {
		t.Errorf("etcd has\n%s", got)
	}
	if n.There(strings.TrimPrefix(etcdDir, "/")) {
		t.Error("the configuration for kubeadm stays")
	}
}

// The member of etcd is changed first, and the kubelet last. Its data and the
// certificates are left alone, and so are kube-proxy and CoreDNS.
func TestControlPlaneVersionChanges(t *testing.T) {
	n, server, is := startPlane(t, member("3.7.0-0", "blue-1=https://10.0.0.5:2380", "5s"))
	revision := server.want(is)
	for range 2 {
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
	}
	checkPlane(t, n, newerVersion, "3.7.0-0")
	if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
		t.Error(got)
	}
	const want = `kubeadm upgrade node phase preflight --ignore-preflight-errors Mem,Swap
kubeadm init phase etcd local --dry-run --config /var/lib/nova/etcd/kubeadm.yaml
kubeadm upgrade node --etcd-upgrade=false --certificate-renewal=false --skip-phases=preflight,addon --patches /etc/kubernetes/patches
systemctl daemon-reload
systemctl restart kubelet
`
	if calls := n.Get("calls"); calls != want {
		t.Errorf("calls:\n%s", calls)
	}
	if got := n.Get("kubelet-before"); got != "Kubernetes "+olderVersion+"\n" {
		t.Errorf("the components were changed with the kubelet %s", got)
	}
}

// etcd is not restarted for arguments that a member does not read any more, and not
// on another machine.
func TestEtcdStaysAsItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		external bool
		changed  bool
	}{
		"Same":     {manifest: member("3.6.6-0", "blue-1=https://10.0.0.5:2380", "5s")},
		"Option":   {manifest: member("3.6.6-0", "blue-1=https://10.0.0.5:2380", "6s"), changed: true},
		"External": {manifest: member("3.7.0-0", "blue-1=https://10.0.0.5:2380", "5s"), external: true},
	} {
		t.Run(name, func(t *testing.T) {
			n, server, is := startPlane(t, tc.manifest)
			if tc.external {
				if err := n.Remove("/" + etcdFile); err != nil {
					t.Fatal(err)
				}
			}
			before := n.Get(etcdFile)
			server.want(is)
			if err := followOnce(t, n); err != nil {
				t.Fatalf("%v\n%s", err, n.Log)
			}
			if got := n.Get(etcdFile); (got != before) != tc.changed {
				t.Errorf("etcd has\n%s", got)
			}
		})
	}
}

// A control plane node that does not become ready gets its former version back. etcd
// does not if its minor version is another one: it may not read its data any more.
func TestControlPlaneVersionIsRestored(t *testing.T) {
	const minor, patch = "3.7.0-0", "3.6.8-0"
	for name, tc := range map[string]struct {
		change      func(*agenttest.Machine, *apiServer)
		etcd, image string
		want        string
	}{
		"Kubeadm":   {func(n *agenttest.Machine, _ *apiServer) { n.Put("refused", "") }, minor, minor, "running kubeadm: exit status 1"},
		"Patch":     {func(n *agenttest.Machine, _ *apiServer) { n.Put("refused", "") }, patch, "3.6.6-0", "running kubeadm: exit status 1"},
		"Etcd":      {func(_ *agenttest.Machine, s *apiServer) { s.broken = "etcd" }, minor, minor, "changing etcd: pod etcd-blue-1 is not ready"},
		"EtcdPatch": {func(_ *agenttest.Machine, s *apiServer) { s.broken = "etcd" }, patch, "3.6.6-0", "changing etcd: pod etcd-blue-1 is not ready"},
		"Component": {func(_ *agenttest.Machine, s *apiServer) { s.broken = "scheduler" }, minor, minor, "pod kube-scheduler-blue-1 is not ready"},
		"Kubelet":   {func(_ *agenttest.Machine, s *apiServer) { s.kubelet = func() string { return olderVersion } }, minor, minor, `the kubelet has reported version "v1.36.3"`},
	} {
		t.Run(name, func(t *testing.T) {
			n, server, is := startPlane(t, member(tc.etcd, "", "5s"))
			tc.change(n, server)
			revision := server.want(is)
			if err := followOnce(t, n); err == nil {
				t.Fatal("no error")
			}
			if got, want := server.condition(), "False StepFailed Revision "+revision+": changing to Kubernetes v1.37.0: "+tc.want; !strings.HasPrefix(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
			checkPlane(t, n, olderVersion, tc.image)
		})
	}
}

// Whichever command is the last one before a reset, the next start completes the
// change.
func TestControlPlaneVersionContinuesAfterAReset(t *testing.T) {
	var is *nodeconfig.Settings
	begin := func(t *testing.T) (*agenttest.Machine, *apiServer) {
		t.Helper()
		n, server, newer := startPlane(t, member("3.7.0-0", "", "5s"))
		is = newer
		return n, server
	}
	failAtEach(t, 20, begin, func() *nodeconfig.Settings { return is }, followOnce, func(t *testing.T, n *agenttest.Machine, server *apiServer, revision string) {
		t.Helper()
		checkPlane(t, n, newerVersion, "3.7.0-0")
		if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
			t.Error(got)
		}
	})
}

func TestEtcdStays(t *testing.T) {
	const digest = "@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for name, tc := range map[string]struct {
		former, present string
		want            bool
	}{
		"Same":      {member("3.6.6-0", "", ""), member("3.6.6-0", "", ""), false},
		"Patch":     {member("3.6.6-0", "", ""), member("3.6.8-0", "", ""), false},
		"Minor":     {member("3.6.8-0", "", ""), member("3.7.0-0", "", ""), true},
		"Major":     {member("3.6.8-0", "", ""), member("4.6.8-0", "", ""), true},
		"Digest":    {member("3.6.8-0"+digest, "", ""), member("3.7.0-0"+digest, "", ""), true},
		"Unknown":   {member("own", "", ""), member("other", "", ""), true},
		"Unchanged": {member("own", "", "1"), member("own", "", "2"), false},
		"NotRun":    {member("3.6.8-0", "", ""), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := etcdStays(tc.former, tc.present); got != tc.want {
				t.Errorf("stays: %t", got)
			}
		})
	}
}
