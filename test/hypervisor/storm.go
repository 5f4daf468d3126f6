package hypervisor

import (
	"context"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// stormMachines is the number of machines that are created and deleted while
// requests fail.
const stormMachines = 12

// storms returns the behavior while many requests fail at the same time.
func storms[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	return []behavior[M, C]{
		{name: "machines are created and deleted while many requests fail", check: func(e env) { e.storm() }},
	}
}

// storm creates and deletes pairs of machines while requests and responses are
// lost, the server responds with 503, sessions end and all connections are reset. A
// disk that another user attached must be left.
func (e *environment[M, C]) storm() {
	e.options.MaxCreations = 3
	e.restart()
	machines := e.machines("m", stormMachines)
	for i, m := range machines {
		m.GetLabels()[clusterv1.MachineDeploymentNameLabel] = fmt.Sprintf("storm-%d", i/2)
		spec, _ := m.Common()
		spec.AntiAffinity = infrav1.AntiAffinityPreferred
	}
	failures := e.inStorm(machines...)
	for i, m := range machines {
		e.Expect(e.named(m.GetName())).To(HaveLen(1))
		e.Expect(hasUserData(e.vm(m.GetName()))).To(BeFalse(), "%s has bootstrap data", m.GetName())
		e.Expect(e.sim.OwnDisks(m.GetName())).To(Equal(1))
		machines[i] = deleting(m)
	}
	e.Eventually(e.sim.Groups).Should(And(HaveLen(stormMachines/2), HaveEach(HaveLen(2))))
	e.sim.AttachDisk(e.vm("m-0").ID, "data")
	failures += e.inStorm(machines...)
	e.Expect(e.sim.VMs()).To(BeEmpty())
	e.Expect(e.sim.HasDisk("data")).To(BeTrue())
	e.Expect(e.nothingLeft(machines)).To(Succeed())
	e.Expect(failures).To(BeNumerically(">", stormMachines/2), "too few requests failed")
}

// inStorm reconciles machines to the end while requests fail, and returns the number
// of failed reconciles.
func (e *environment[M, C]) inStorm(machines ...M) int {
	e.t.Helper()
	e.network.setStorm(true)
	defer e.network.setStorm(false)
	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.disturb(ctx)
	}()
	failures, err := e.controlled(e.connector, nil, machines...)
	cancel()
	<-ended
	e.Expect(err).NotTo(HaveOccurred())
	e.t.Logf("%d reconciles failed, %d connections", failures, e.network.connections())
	return failures
}

// disturb ends all sessions or resets all connections, in turn, until the context
// ends.
func (e *environment[M, C]) disturb(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n%2 == 0 {
			e.sim.ExpireSessions()
			continue
		}
		e.network.setDown(true)
		e.network.setDown(false)
	}
}

// setStorm makes requests fail until it is called with false.
func (n *network) setStorm(storm bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.storm = storm
}

// fault returns how the current request fails, or nil. The caller holds the lock.
// A new session takes up to 20 requests, so most of them succeed.
func (n *network) fault() *loss {
	n.met++
	switch {
	case n.met%19 == 0:
		return &loss{reached: make(chan struct{})}
	case n.met%23 == 0:
		return &loss{after: true, reached: make(chan struct{})}
	case n.met%29 == 0:
		return &loss{status: http.StatusServiceUnavailable}
	}
	return nil
}
