package vcenter

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// A writer that changes an object holds the lock of the object, and a
// comparison may wait for that lock: the report of a change must not wait.
func TestReportDoesNotWait(t *testing.T) {
	g := NewWithT(t)
	w := newWatch(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		w.UpdateObject(nil, ref{Type: "Task", Value: "task-1"}, nil)
		w.RemoveObject(nil, ref{Type: "VirtualMachine", Value: "vm-1"})
	}()
	g.Eventually(reported, 10*time.Second).Should(BeClosed())
	objects, everything := w.empty()
	g.Expect(objects).To(HaveKey(ref{Type: "Task", Value: "task-1"}))
	g.Expect(everything).To(BeTrue())
}
