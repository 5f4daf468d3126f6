package restore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/restore"
)

// commands are those of a restore. etcdutl writes the same files as the real
// etcdutl.
var commands = map[string]string{
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

// run restores on a machine that downloads content. The server fails this often.
func run(t *testing.T, content, hash string, fails int, prepare func(*agenttest.Machine)) (*agenttest.Machine, error) {
	t.Helper()
	server := agenttest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		if fails--; fails >= 0 || r.URL.Query().Get("sig") != "secret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(content))
	})
	n := agenttest.New(t, commands)
	n.Program("etcdutl", etcdutlOfTheImage)
	if prepare != nil {
		prepare(n)
	}
	err := restore.Run(t.Context(), n.Machine, &nodeconfig.Restore{
		Snapshot: "s", URL: server.URL + "/a.db?sig=secret", SHA256: hash, CA: server.CA(), DataDir: "/var/lib/etcd", ClusterConfiguration: "kind: x\n",
	}, restore.Node{Name: "blue-abc12", Address: "fd00::5"})
	return n, err
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestNodeRestores(t *testing.T) {
	n, err := run(t, "the snapshot", hashOf("the snapshot"), 2, func(n *agenttest.Machine) { n.Put("var/lib/etcd/lost+found/x", "") })
	if err != nil {
		t.Fatalf("%v\n%s", err, n.Log)
	}
	if got := n.Get("var/lib/etcd/member/snap/db"); got != "the snapshot" {
		t.Errorf("etcd finds %q", got)
	}
	calls := n.Get("calls")
	for _, want := range []string{
		"--name blue-abc12", "--initial-cluster blue-abc12=https://[fd00::5]:2380", "--initial-advertise-peer-urls https://[fd00::5]:2380",
		"--bump-revision 1000000000 --mark-compacted", "name==registry.k8s.io/etcd:3.6.9-0", "images unmount",
	} {
		if !strings.Contains(calls, want) {
			t.Errorf("no %q in\n%s", want, calls)
		}
	}
	if strings.Contains(calls+n.Log.String(), "secret") {
		t.Error("the URL was left behind")
	}
	if n.There("var/lib/etcd/.nova-restore") || n.There("run/nova/restore.yaml") {
		t.Error("the download was left behind")
	}
	if info, err := os.Stat(n.Dir("var/lib/etcd")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others can read the data of etcd: %v %v", info, err)
	}
	if n.Waits(5*time.Second) != 2 {
		t.Error("a failed download is not repeated")
	}
}

func TestNodeRefusesToRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		fails   int
		prepare func(*agenttest.Machine)
		want    string
	}{
		"OtherBytes": {content: "another snapshot", want: "snapshot s has another SHA-256 than"},
		"Data":       {content: "the snapshot", prepare: func(n *agenttest.Machine) { n.Put("var/lib/etcd/member/snap/db", "precious") }, want: "already contains an etcd member"},
		"EtcdFails":  {content: "the snapshot", prepare: func(n *agenttest.Machine) { n.Program("etcd", "#!/bin/sh\necho broken; exit 1\n") }, want: "etcd does not start"},
		"Etcdutl":    {content: "the snapshot", prepare: func(n *agenttest.Machine) { n.Put("etcdutl", "#!/bin/sh\nexit 1\n") }, want: "etcdutl failed"},
		"NoEtcdutl":  {content: "the snapshot", prepare: func(n *agenttest.Machine) { _ = os.Remove(n.Dir("etcdutl")) }, want: "has no etcdutl"},
		"NoServer":   {content: "the snapshot", fails: 99, want: "snapshot s cannot be downloaded: the server responds with 403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := run(t, tc.content, hashOf("the snapshot"), tc.fails, tc.prepare)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "sig=") {
				t.Errorf("err = %v, log:\n%s", err, n.Log)
			}
			if got := n.Get("var/lib/etcd/member/snap/db"); got != "" && got != "precious" {
				t.Errorf("etcd finds %q", got)
			}
		})
	}
}
