package bootstrap

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// restoring is a machine that restores a snapshot.
func restoring(in *Input) {
	in.Restore = &Restore{
		Snapshot: "20260102t030405z", URL: "https://s3.example.org/b/a.db?X-Amz-Signature=abc", SHA256: strings.Repeat("0", 64), CA: []byte("authority\n"),
	}
}

// kubeadmDocument finds one of kubeadm's documents.
func kubeadmDocument(t *testing.T, in Input, kind string) map[string]any {
	t.Helper()
	for content := range strings.SplitSeq(filesOf(t, render(t, in))["/run/nova/kubeadm.template"], "---\n") {
		document := map[string]any{}
		if err := yaml.Unmarshal([]byte(content), &document); err != nil {
			t.Fatal(err)
		}
		if document["kind"] == kind {
			return document
		}
	}
	t.Fatalf("no %s", kind)
	return nil
}

func TestRestoreIsRendered(t *testing.T) {
	in := facts(Init, func(in *Input) {
		restoring(in)
		in.Spec.Kubeadm.IgnorePreflightErrors = []string{"SystemVerification"}
		in.Spec.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{
			{Kind: "ClusterConfiguration", Patch: "etcd: {local: {dataDir: /data/etcd, imageTag: 3.6.9-0}}"},
			{Kind: "InitConfiguration", Patch: "nodeRegistration: {ignorePreflightErrors: [Swap]}"},
		}
	})
	files := filesOf(t, render(t, in))
	if got := files["/run/nova/restore/settings"]; !strings.Contains(got, "DATA_DIR='/data/etcd'\n") {
		t.Errorf("settings:\n%s", got)
	}
	if got := files["/run/nova/restore/curl"]; !strings.Contains(got, `url = "https://s3.example.org/b/a.db?X-Amz-Signature=abc"`) || !strings.Contains(got, "cacert") {
		t.Errorf("curl:\n%s", got)
	}
	if got := files["/run/nova/restore/cluster.yaml"]; !strings.Contains(got, "imageTag: 3.6.9-0") {
		t.Errorf("cluster:\n%s", got)
	}
	registration := kubeadmDocument(t, in, "InitConfiguration")["nodeRegistration"].(map[string]any)
	if got := registration["ignorePreflightErrors"]; len(got.([]any)) != 2 || got.([]any)[1] != "DirAvailable--data-etcd" {
		t.Errorf("a user's patch keeps kubeadm from going on: %v", got)
	}
	for _, mode := range []Mode{JoinControlPlane, JoinWorker} {
		for path := range filesOf(t, render(t, facts(mode, restoring))) {
			if strings.Contains(path, "restore") {
				t.Errorf("a machine that joins has %s", path)
			}
		}
	}
}

// TestLocalEtcd renders the settings of the etcd member with the names of kubeadm.
func TestLocalEtcd(t *testing.T) {
	in := facts(Init, func(in *Input) {
		in.Etcd = controlplanev1.LocalEtcdSpec{
			DataDir: "/data/etcd", ImageRepository: "registry.example/etcd", ImageTag: "3.6.9-0",
			ExtraArgs: []bootstrapv1.Arg{{Name: "quota-backend-bytes", Value: ptr.To("8")}},
			ExtraEnvs: []bootstrapv1.EnvVar{{Name: "GOMAXPROCS", Value: ptr.To("2")}},
		}
	})
	want := map[string]any{"local": map[string]any{
		"dataDir": "/data/etcd", "imageRepository": "registry.example/etcd", "imageTag": "3.6.9-0",
		"extraArgs": []any{map[string]any{"name": "quota-backend-bytes", "value": "8"}},
		"extraEnvs": []any{map[string]any{"name": "GOMAXPROCS", "value": "2"}},
	}}
	if diff := cmp.Diff(want, kubeadmDocument(t, in, "ClusterConfiguration")["etcd"]); diff != "" {
		t.Errorf("etcd (-want +got)\n%s", diff)
	}
	for mode, wanted := range map[Mode]bool{Init: true, JoinControlPlane: true, JoinWorker: false} {
		in := facts(mode, func(in *Input) { in.Etcd.DataDir = "/data/etcd" })
		if made := strings.Contains(filesOf(t, render(t, in))["/run/nova/preKubeadmCommands/000"], "make_etcd_dir '/data/etcd'\n"); made != wanted {
			t.Errorf("%s: the directory is created: %v, want %v", mode, made, wanted)
		}
	}
}

func TestExternalEtcd(t *testing.T) {
	in := facts(Init, func(in *Input) { in.ExternalEtcd = []string{"https://etcd-0:2379", "https://etcd-1:2379"} })
	etcd := kubeadmDocument(t, in, "ClusterConfiguration")["etcd"].(map[string]any)
	again := in
	again.Restore = &Restore{}
	for path := range filesOf(t, render(t, again)) {
		if strings.Contains(path, "restore") {
			t.Errorf("a machine that initializes with the data of external etcd has %s", path)
		}
	}
	external, is := etcd["external"].(map[string]any)
	if !is || etcd["local"] != nil {
		t.Fatalf("etcd: %v", etcd)
	}
	if len(external["endpoints"].([]any)) != 2 || external["caFile"] != etcdCAFile || external["certFile"] != etcdClientCertFile || external["keyFile"] != etcdClientKeyFile {
		t.Errorf("external: %v", external)
	}
}

// restoreCommands are the commands that the restore script calls. etcdutl
// writes the same files as the real etcdutl.
var restoreCommands = map[string]string{
	"kubeadm": `echo "kubeadm $*" >>"$T/calls"; echo registry.k8s.io/coredns/coredns:v1; echo registry.k8s.io/etcd:3.6.9-0`,
	"ctr": `echo "ctr $*" >>"$T/calls"
case "$*" in
*mount*registry*) for d; do :; done; mkdir -p "$d/usr/local/bin"; for p in etcd etcdutl; do [ ! -e "$T/$p" ] || cp "$T/$p" "$d/usr/local/bin/"; done ;;
*unmount*) for d; do :; done; rm -rf "$d" ;;
esac`,
}

const etcdutlOfTheImage = `#!/bin/sh
echo "etcdutl $*" >>"$T/calls"
[ "$4" = --data-dir ] || exit 1
mkdir -p "$5/member/snap" && cp "$3" "$5/member/snap/db"
`

// program installs a program on the machine.
func (n *node) program(path, content string) {
	n.t.Helper()
	n.write(path, content)
	if err := os.Chmod(filepath.Join(n.dir, path), 0o700); err != nil {
		n.t.Fatal(err)
	}
}

// runRestore runs the script on a machine that downloads content.
func runRestore(t *testing.T, content, hash string, prepare func(n *node)) (*node, error) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sig") != "secret" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(content))
	}))
	t.Cleanup(server.Close)
	n := newNode(t, facts(Init, func(in *Input) {
		in.Restore = &Restore{
			Snapshot: "s", URL: server.URL + "/a.db?sig=secret", SHA256: hash,
			CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}
	}))
	for name, body := range restoreCommands {
		n.command(name, body)
	}
	n.program("etcdutl", etcdutlOfTheImage)
	if prepare != nil {
		prepare(n)
	}
	for _, name := range []string{"run/nova/preKubeadmCommands/" + lastCommand, "run/nova/restore/settings", "run/nova/restore/curl"} {
		moved := strings.NewReplacer("/run/nova", n.dir+"/run/nova", "/var/lib/etcd", n.dir+"/var/lib/etcd", "/etc/nova", n.dir+"/etc/nova")
		n.write(name, moved.Replace(n.read(name)))
	}
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(n.dir, "run/nova/preKubeadmCommands", lastCommand))
	cmd.Env = []string{"PATH=" + filepath.Join(n.dir, "bin") + ":/usr/bin:/bin", "T=" + n.dir, "NODE_NAME=blue-abc12", "NODE_IP=fd00::5,10.77.0.105"}
	out, err := cmd.CombinedOutput()
	n.write("out", string(out))
	return n, err
}

func TestNodeRestores(t *testing.T) {
	sum := sha256.Sum256([]byte("the snapshot"))
	n, err := runRestore(t, "the snapshot", hex.EncodeToString(sum[:]), func(n *node) { n.write("var/lib/etcd/lost+found/x", "") })
	if err != nil {
		t.Fatalf("%v\n%s", err, n.read("out"))
	}
	if got := n.read("var/lib/etcd/member/snap/db"); got != "the snapshot" {
		t.Errorf("etcd finds %q", got)
	}
	calls := n.read("calls")
	for _, want := range []string{
		"--name blue-abc12", "--initial-cluster blue-abc12=https://[fd00::5]:2380", "--initial-advertise-peer-urls https://[fd00::5]:2380",
		"--bump-revision 1000000000 --mark-compacted", "name==registry.k8s.io/etcd:3.6.9-0", "images unmount",
	} {
		if !strings.Contains(calls, want) {
			t.Errorf("no %q in\n%s", want, calls)
		}
	}
	if strings.Contains(calls+n.read("out"), "secret") || n.read("run/nova/restore/curl") != "" {
		t.Error("the URL was left behind")
	}
	if _, err := os.Stat(filepath.Join(n.dir, "var/lib/etcd/.nova-restore")); err == nil {
		t.Error("the download was left behind")
	}
}

func TestNodeRefusesToRestore(t *testing.T) {
	sum := sha256.Sum256([]byte("the snapshot"))
	hash := hex.EncodeToString(sum[:])
	for name, tc := range map[string]struct {
		content string
		prepare func(*node)
		want    string
	}{
		"OtherBytes": {"another snapshot", nil, "the SHA-256 of snapshot s differs"},
		"Data":       {"the snapshot", func(n *node) { n.write("var/lib/etcd/member/snap/db", "precious") }, "already contains an etcd member"},
		"EtcdFails":  {"the snapshot", func(n *node) { n.program("etcd", "#!/bin/sh\necho broken; exit 1\n") }, "broken\nRestoring etcd: etcd does not start"},
		"NoEtcdutl":  {"the snapshot", func(n *node) { n.write("etcdutl", "#!/bin/sh\nexit 1\n") }, "etcdutl failed"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := runRestore(t, tc.content, hash, tc.prepare)
			if err == nil || !strings.Contains(n.read("out"), tc.want) {
				t.Errorf("err = %v, out:\n%s", err, n.read("out"))
			}
			if got := n.read("var/lib/etcd/member/snap/db"); got != "" && got != "precious" {
				t.Errorf("etcd finds %q", got)
			}
		})
	}
}
