package etcd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/restore"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// restored restores a snapshot as a machine does, and returns the folder of
// etcd's data and the output. The etcd programs are real, in an image that is a
// folder.
func (c *cluster) restored(t *testing.T, programs map[string]string, snapshot []byte) (data, output string) {
	t.Helper()
	n := agenttest.New(t, map[string]string{
		"kubeadm": "echo registry.k8s.io/etcd:3.7.3-0",
		"ctr": fmt.Sprintf(`case "$*" in
*mount*registry*) for d; do :; done; mkdir -p "$d/usr/local/bin"; ln -s %s %s "$d/usr/local/bin/" ;;
*unmount*) for d; do :; done; rm -rf "$d" ;;
esac`, programs["etcd"], programs["etcdutl"]),
	})
	server := agenttest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(snapshot) })
	err := restore.Run(t.Context(), n.Machine, &nodeconfig.Restore{
		Snapshot: "s", URL: server.URL, SHA256: fmt.Sprintf("%x", sha256.Sum256(snapshot)), CA: server.CA(), DataDir: "/etcd", ClusterConfiguration: "kind: x\n",
	}, restore.Node{Name: "cp-a", Address: "10.77.0.105"})
	c.g.Expect(err).NotTo(HaveOccurred(), n.Log.String())
	data = n.Dir("etcd")
	left, err := os.ReadDir(data)
	c.g.Expect(err).NotTo(HaveOccurred())
	c.g.Expect(left).To(HaveLen(1), "nothing but the member is left")
	return data, n.Log.String()
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
