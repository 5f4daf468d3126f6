package etcd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// restored runs the restore script of a machine, and returns the folder of
// etcd's data and the output. The etcd programs are real, in an image that is a
// folder.
func (c *cluster) restored(t *testing.T, programs map[string]string, snapshot []byte) (data, output string) {
	t.Helper()
	dir := t.TempDir()
	data = filepath.Join(dir, "etcd")
	write := func(name, content string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		c.g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		c.g.Expect(os.WriteFile(path, []byte(content), mode)).To(Succeed())
	}
	write("snapshot.db", string(snapshot), 0o600)
	write("run/settings", fmt.Sprintf("DATA_DIR=%s\nSNAPSHOT=s\nSHA256=%x\n", data, sha256.Sum256(snapshot)), 0o600)
	write("run/curl", fmt.Sprintf("url = \"file://%s\"\nsilent\n", filepath.Join(dir, "snapshot.db")), 0o600)
	write("bin/kubeadm", "#!/bin/sh\necho registry.k8s.io/etcd:3.7.3-0\n", 0o700)
	write("bin/ctr", fmt.Sprintf(`#!/bin/sh
case "$*" in
*mount*registry*) for d; do :; done; mkdir -p "$d/usr/local/bin"; ln -s %s %s "$d/usr/local/bin/" ;;
*unmount*) for d; do :; done; rm -rf "$d" ;;
esac
`, programs["etcd"], programs["etcdutl"]), 0o700)
	script, err := os.ReadFile(filepath.Join(tools.Root(), "bootstrap", "restore.sh"))
	c.g.Expect(err).NotTo(HaveOccurred())
	write("restore.sh", strings.ReplaceAll(string(script), "/run/nova/restore", filepath.Join(dir, "run")), 0o600)
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "restore.sh"))
	// The proxy does not exist: only requests without it succeed.
	cmd.Env = []string{
		"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin", "NODE_NAME=cp-a", "NODE_IP=10.77.0.105",
		"http_proxy=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1",
	}
	out, err := cmd.CombinedOutput()
	c.g.Expect(err).NotTo(HaveOccurred(), string(out))
	left, err := os.ReadDir(data)
	c.g.Expect(err).NotTo(HaveOccurred())
	c.g.Expect(left).To(HaveLen(1), "nothing but the member is left")
	return data, string(out)
}

// A snapshot contains the alarms that were raised when it was taken, for
// members that are not restored.
func TestRestoreOfAlarms(t *testing.T) {
	programs, err := tools.Paths(t.Context(), os.Stderr, "etcd", "etcdutl")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	c := startCluster(t, "cp-a")
	g := c.g
	var before *Health
	observe := func() (problems []string, err error) {
		if before, err = Observe(t.Context(), c.dial, c.config, []string{"cp-a"}); err != nil {
			return nil, err
		}
		return before.Problems([]string{"cp-a"}), nil
	}
	g.Eventually(observe, "30s", "100ms").Should(BeEmpty())
	g.Expect(c.write(t)).To(Succeed())
	take := func() (snapshot []byte) {
		_, err := TakeSnapshot(t.Context(), c.dial, c.config, "cp-a", func(_ context.Context, r io.Reader) (err error) {
			snapshot, err = io.ReadAll(r)
			return err
		})
		g.Expect(err).NotTo(HaveOccurred())
		return snapshot
	}
	whole := take()
	g.Expect(c.arm(t, before.Members[0].ID, etcdserverpb.AlarmType_NOSPACE)).To(Succeed())
	g.Expect(c.arm(t, before.Members[0].ID, etcdserverpb.AlarmType_CORRUPT)).To(Succeed())
	g.Expect(c.arm(t, 0, etcdserverpb.AlarmType_CORRUPT)).To(Succeed())
	alarmed := take()
	c.members["cp-a"].kill()

	for name, tc := range map[string]struct {
		snapshot []byte
		alarms   int
	}{"Whole": {whole, 0}, "Alarmed": {alarmed, 3}} {
		data, output := c.restored(t, programs, tc.snapshot)
		g.Expect(strings.Count(output, "Disarming an alarm")).To(Equal(tc.alarms), output)
		m := &member{name: "cp-a", client: freeAddress(t), peer: freeAddress(t)}
		c.members["cp-a"] = m
		c.start(t, m, programs["etcd"], data)
		g.Eventually(observe, "30s", "100ms").Should(BeEmpty(), name)
		g.Expect(c.write(t)).To(Succeed(), name)
		m.kill()
	}
}
