package hypervisor

import (
	"errors"
	"fmt"
	"sync"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// lanes is the number of environments that run at the same time for crashes.
// Most of a run is waiting.
const lanes = 8

// crashes returns the behaviors after requests that get no response.
func crashes[M Machine, C Cluster]() []behavior[M, C] {
	type env = *environment[M, C]
	return []behavior[M, C]{
		{name: "a manager that crashes at any request is followed by another one", check: func(e env) { e.atEachRequest(true) }},
		{name: "any request may get no response", check: func(e env) { e.atEachRequest(false) }},
	}
}

// atEachRequest runs the life of two machines once for each of its requests,
// and loses that request before and after it is executed. If crash is set, the
// manager crashes at the request.
func (e *environment[M, C]) atEachRequest(crash bool) {
	e.Expect(e.life("whole", nil)).To(Succeed())
	points := e.network.requests()
	e.t.Logf("%d requests in the life of two machines: %v", len(points), points)

	var mu sync.Mutex
	var wrong []error
	lives, reached := 0, 0
	var runs errgroup.Group
	for lane := range lanes {
		other := newEnvironment(e.t, e.adapter, SimulatorOptions{})
		runs.Go(func() error {
			for i := lane; i < len(points); i += lanes {
				outcomes := []bool{false, true}
				if points[i].read {
					outcomes = outcomes[:1] // a read whose response is lost changes nothing either
				}
				for _, after := range outcomes {
					lost := &loss{request: points[i], after: after, crash: crash}
					err := other.life(fmt.Sprintf("at-%d-%t", i, after), lost)
					mu.Lock()
					lives++
					if err != nil {
						wrong = append(wrong, fmt.Errorf("%s, after=%t: %w", points[i], after, err))
					}
					if lost.isReached() {
						reached++
					}
					mu.Unlock()
				}
			}
			return nil
		})
	}
	e.Expect(runs.Wait()).To(Succeed())
	e.Expect(errors.Join(wrong...)).NotTo(HaveOccurred())
	e.t.Logf("a request was lost in %d of %d lives", reached, lives)
	e.Expect(reached).To(BeNumerically(">=", lives*3/4), "the order of requests differs a little between runs")
}

// life creates and deletes two machines of a group, and loses a request of
// that.
func (e *environment[M, C]) life(name string, lost *loss) error {
	machines := e.machines(name, 2)
	for _, m := range machines {
		m.GetLabels()[clusterv1.MachineDeploymentNameLabel] = name
		spec, _ := m.Common()
		spec.AntiAffinity = infrav1.AntiAffinityPreferred
		spec.PowerOff = infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard, TimeoutSeconds: 60}
	}
	e.network.lose(lost)
	e.connector = e.connect()
	defer func() { e.connector.Close() }()
	if err := e.finish(lost, machines...); err != nil {
		return fmt.Errorf("creation: %w", err)
	}
	for _, m := range machines {
		found := e.named(m.GetName())
		switch {
		case len(found) != 1:
			return fmt.Errorf("%s has %d VMs", m.GetName(), len(found))
		case hasUserData(found[0]):
			return fmt.Errorf("%s has user data", m.GetName())
		case e.sim.OwnDisks(m.GetName()) != 1:
			return fmt.Errorf("%s has %d disks", m.GetName(), e.sim.OwnDisks(m.GetName()))
		}
	}
	if groups := e.sim.Groups(); len(groups) != 1 || len(groups[0]) != 2 {
		return fmt.Errorf("the group is %v", groups)
	}
	for _, m := range machines {
		e.setSizes(m, moreCPUs, moreMemoryMiB, moreDiskGiB)
	}
	if err := e.finish(lost, machines...); err != nil {
		return fmt.Errorf("increase: %w", err)
	}
	for i, m := range machines {
		if found := e.named(m.GetName()); len(found) != 1 || found[0].CPUs != moreCPUs || found[0].MemoryMiB != moreMemoryMiB || found[0].DiskGiB != moreDiskGiB {
			return fmt.Errorf("%s is %+v", m.GetName(), found)
		}
		machines[i] = deleting(m)
	}
	if err := e.finish(lost, machines...); err != nil {
		return fmt.Errorf("deletion: %w", err)
	}
	e.network.restore()
	if left := e.sim.VMs(); len(left) > 0 {
		return fmt.Errorf("%d VMs are left", len(left))
	}
	return e.nothingLeft(machines)
}

// nothingLeft waits until no group and no disk is left.
func (e *environment[M, C]) nothingLeft(machines []M) (err error) {
	g := NewGomega(func(message string, _ ...int) { err = errors.New(message) })
	// The controller of the cluster, too, uses the connector.
	g.Eventually(func() error { _, err := e.connector.Inspect(e.ctx(), e.cluster); return err }, timeout, interval).Should(Succeed())
	g.Eventually(e.sim.Groups, timeout, interval).Should(BeEmpty())
	for _, m := range machines {
		g.Eventually(func() int { return e.sim.OwnDisks(m.GetName()) }, timeout, interval).Should(BeZero())
	}
	return err
}

// finish reconciles machines to the end. If the manager crashes, another one
// continues.
func (e *environment[M, C]) finish(lost *loss, machines ...M) error {
	if lost != nil && lost.crash && !lost.isReached() {
		_, err := e.controlled(e.connector, lost.reached, machines...)
		if !lost.isReached() {
			return err
		}
	}
	// A request in the background may be lost between the creation and the deletion.
	if lost != nil && lost.crash && e.network.isDown() {
		e.connector.Close()
		e.network.restore()
		e.connector = e.connect()
	}
	_, err := e.controlled(e.connector, nil, machines...)
	return err
}
