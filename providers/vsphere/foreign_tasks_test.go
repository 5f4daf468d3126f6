package vsphere

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	vcenterclient "github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// meter counts the bytes of responses.
type meter struct {
	next  http.RoundTripper
	bytes *atomic.Int64
}

func (m meter) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := m.next.RoundTrip(req)
	if err == nil {
		res.Body = meteredBody{res.Body, m.bytes}
	}
	return res, err
}

type meteredBody struct {
	io.ReadCloser

	bytes *atomic.Int64
}

func (b meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// Only the state of other users' tasks is read: their results can have
// megabytes.
func TestTasksOfOtherUsers(t *testing.T) {
	const tasks, size = 1000, 64 << 10
	b := newBed(t)
	var bytes atomic.Int64
	b.options.wrap = func(next http.RoundTripper) http.RoundTripper { return meter{next, &bytes} }
	b.connector = b.newConnector()
	b.create("before")
	bytes.Store(0)
	b.vc.AddTasks(tasks, size)
	b.create("m")
	b.Expect(bytes.Load()).To(And(BeNumerically(">", tasks*100), BeNumerically("<", tasks*size/10)))
	b.vc.ResetRequests()
	b.connector.Close()

	b.connector = b.newConnector()
	b.waitForState(b.machine("m"), hypervisor.Running)
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue("Login", 1))
}

// The response with many changes is truncated, and vCenter does not repeat
// such a response. The session stays open.
func TestTruncatedAnswerIsLost(t *testing.T) {
	b := newBed(t)
	m := b.create("m")
	b.vc.ResetRequests()
	lost := false
	b.vc.SetDisturbance(func(method string) vcenter.Disturbance {
		if method != vcenterclient.PollMethod || lost {
			return vcenter.Undisturbed
		}
		lost = true
		return vcenter.AnswerLost
	})
	b.vc.AddTasks(700, 10)
	b.Eventually(b.vc.LongPolls).Should(BeNumerically(">=", 3))
	b.vc.SetDisturbance(nil)
	b.Expect(lost).To(BeTrue())
	b.waitForState(m, hypervisor.Running)
	b.create("next")
	b.Expect(b.vc.Requests()).NotTo(HaveKey("Login"))
}
