package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
)

const (
	// killWindow is how long after the managers were killed a failed request counts as
	// caused by it: new managers have not changed a machine before.
	killWindow = 10 * time.Second
	// stuckTime is how long the condition stays the same before a host that is off counts
	// as the only reason why a stage does not end. It is longer than the replacement of a
	// machine, or its update in place.
	stuckTime        = 100 * time.Second
	stuckTimeInPlace = 5 * time.Minute
)

// disturbance disturbs a stage of a rotation, once.
type disturbance struct {
	name string
	// strike begins or continues it, and reports whether it is over. The message is that
	// of the condition.
	strike func(ctx context.Context, message string) (over bool, err error)
}

// disturbances returns those of a stage.
func (n *rotationTest) disturbances(c bed.Cluster, stage string) []disturbance {
	var all []disturbance
	inPlace := n.inPlace()
	if n.kill {
		all = append(all, disturbance{"killing managers", n.killManagers})
	}
	if n.kill && c.StarVault != "" {
		all = append(all, disturbance{"killing the vault", func(context.Context, string) (bool, error) { return n.killPrograms(bed.VaultName) }})
	}
	if n.kill && inPlace {
		all = append(all, disturbance{"killing a host agent", n.killAgent(c)})
	}
	switch {
	case !n.off:
	case stage == controlplanev1.AuthoritiesTrustingBothReason:
		all = append(all, disturbance{"a worker that is off", n.powerCycle(n.worker(c))})
	case stage == controlplanev1.AuthoritiesIssuingNewReason && inPlace:
		all = append(all, disturbance{"a control plane machine that is off", n.powerCycle(n.spareControlPlane(c))})
	}
	return all
}

// disturb continues disturbances and returns those that are not over. It repeats one that
// fails.
func (n *rotationTest) disturb(ctx context.Context, left []disturbance, message string) []disturbance {
	return slices.DeleteFunc(left, func(d disturbance) bool {
		over, err := d.strike(ctx, message)
		if err != nil {
			fmt.Fprintf(n.out, "%s: %v\n", d.name, err)
		}
		return over
	})
}

// killManagers kills all managers at once.
func (n *rotationTest) killManagers(context.Context, string) (bool, error) {
	at := time.Now()
	over, err := n.killPrograms(append(bed.Providers(bed.VSphere), bed.CoreManager)...)
	if over {
		n.killed = append(n.killed, at)
	}
	return over, err
}

// killPrograms kills programs of the test environment, which starts them again.
func (n *rotationTest) killPrograms(names ...string) (bool, error) {
	for _, name := range names {
		if err := n.bed.Kill(name, syscall.SIGKILL); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(n.out, "  killed %s\n", strings.Join(names, ", "))
	return true, nil
}

// killAgent kills the host agent of the first control plane machine that applies its
// settings.
func (n *rotationTest) killAgent(c bed.Cluster) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, _ string) (bool, error) {
		machines, _, err := n.bed.Machines(ctx, c)
		if err != nil {
			return false, err
		}
		at := slices.IndexFunc(machines, func(m clusterv1.Machine) bool {
			return strings.Contains(conditions.GetMessage(&m, clusterv1.MachineUpdatingCondition), "the settings are being applied")
		})
		if at < 0 {
			return false, nil
		}
		_, err = n.bed.Exec(ctx, machines[at].Name, "sh", "-c", "systemctl kill -s KILL nova-host-agent; systemctl reset-failed nova-host-agent; systemctl start nova-host-agent")
		if err != nil {
			return false, fmt.Errorf("killing the host agent of %s: %w", machines[at].Name, err)
		}
		fmt.Fprintf(n.out, "  killed the host agent of %s\n", machines[at].Name)
		return true, nil
	}
}

// failedAfterKills counts the requests that failed soon after managers were killed.
func (n *rotationTest) failedAfterKills(r prober.Report) int {
	failed := 0
	for _, o := range r.Outages {
		if slices.ContainsFunc(n.killed, func(at time.Time) bool { return !o.From.Before(at) && o.From.Sub(at) < killWindow }) {
			failed += o.Failures
		}
	}
	return failed
}

// powerCycle powers a host off until the stage waits for it, and connects it again for the
// provider to start it.
func (n *rotationTest) powerCycle(pick func(context.Context) (string, error)) func(context.Context, string) (bool, error) {
	host, former, off, since := "", "", time.Time{}, time.Time{}
	stuck := stuckTime
	if n.inPlace() {
		stuck = stuckTimeInPlace
	}
	return func(ctx context.Context, message string) (bool, error) {
		if kills := len(n.killed); host == "" && kills > 0 && time.Since(n.killed[kills-1]) < killWindow {
			return false, nil // requests that fail are counted
		}
		if host == "" {
			name, err := pick(ctx)
			if err != nil {
				return false, err
			}
			if err := n.powerOff(ctx, name); err != nil {
				return false, err
			}
			host, off = name, time.Now()
			fmt.Fprintf(n.out, "  powered off %s\n", host)
		}
		if message != former {
			former, since = message, time.Now()
		}
		if time.Since(since) < stuck || !strings.Contains(message, "node "+host) {
			return false, nil
		}
		if err := n.bed.SetConnected(ctx, host, true); err != nil {
			return false, err
		}
		fmt.Fprintf(n.out, "  the host of %s is back after %.0f s: %s\n", host, time.Since(off).Seconds(), message)
		return true, nil
	}
}

// powerOff powers a host off. vCenter is disconnected from it until it is to be back, so
// that the provider does not start it.
func (n *rotationTest) powerOff(ctx context.Context, vm string) error {
	h, err := n.bed.Hypervisor("")
	if err != nil {
		return err
	}
	if err := n.bed.Kill(h.Facts().Provider, syscall.SIGSTOP); err != nil {
		return err
	}
	return errors.Join(h.PowerOff(ctx, vm), n.bed.SetConnected(ctx, vm, false), n.bed.Kill(h.Facts().Provider, syscall.SIGCONT))
}

// worker returns a worker.
func (n *rotationTest) worker(c bed.Cluster) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		_, workers, err := n.bed.Machines(ctx, c)
		if err != nil {
			return "", err
		}
		if len(workers) == 0 {
			return "", errors.New("there is no worker")
		}
		return workers[0].Name, nil
	}
}

// spareControlPlane returns a control plane machine that does not hold the address of the
// endpoint.
func (n *rotationTest) spareControlPlane(c bed.Cluster) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		machines, _, err := n.bed.Machines(ctx, c)
		if err != nil {
			return "", err
		}
		holder, err := n.bed.EndpointHolder(ctx, c)
		if err != nil {
			return "", err
		}
		at := slices.IndexFunc(machines, func(m clusterv1.Machine) bool { return m.Name != holder })
		if at < 0 {
			return "", errors.New("there is no other control plane machine")
		}
		return machines[at].Name, nil
	}
}
