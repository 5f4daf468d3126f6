package vsphere

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Callers do not get the client of a login that is being ended.
func TestSessionIsNotUpDuringLogout(t *testing.T) {
	b := newBed(t)
	b.options.timeouts.Wait = 4 * time.Second
	b.connector = b.newConnector()
	m := b.create("m")
	s := b.connect(m).(*driver).session
	b.vc.ResetRequests()
	b.vc.SetLatency("Logout", 2*time.Second)
	b.vc.InjectCallFault("WaitForUpdatesEx", 1, &types.ManagedObjectNotFound{}, "")
	b.Expect(b.vc.GuestStopped(b.idOf("m"))).To(Succeed())
	b.Eventually(b.vc.Requests, "10s", "5ms").Should(HaveKey("Logout"))
	ctx, cancel := context.WithTimeout(b.ctx(), 500*time.Millisecond)
	defer cancel()
	b.Expect(s.Ready(ctx, hypervisor.KeyOf(m))).NotTo(Succeed())
	b.Expect(b.vc.Requests()).NotTo(HaveKey("Login"))
}

// forward starts a server that forwards connections to address. It returns its
// own address and the number of open connections.
func (b *bed) forward(address string) (string, *atomic.Int64) {
	b.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(func() { _ = listener.Close() })
	open := &atomic.Int64{}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			go func() {
				defer open.Add(-1)
				defer func() { _ = from.Close() }()
				to, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(from, to) }()
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}()
		}
	}()
	return listener.Addr().String(), open
}

// A stopped session leaves no connection to vCenter.
func TestStoppedSessionClosesItsConnections(t *testing.T) {
	b := newBed(t)
	var open *atomic.Int64
	b.cluster.Spec.Server, open = b.forward(b.vc.Address)
	b.Expect(b.objects.Update(b.ctx(), b.cluster)).To(Succeed())
	b.create("m")
	b.Expect(open.Load()).To(BeNumerically(">", 0))
	b.connector.Close()
	b.Expect(b.vc.Requests()).To(HaveKey("Logout"))
	b.Eventually(open.Load, "5s").Should(BeZero())
}
