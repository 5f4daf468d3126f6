package boot

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
)

const (
	// clockTimeout is how long the machine waits for its time servers.
	clockTimeout = time.Minute
	// kubeProxyGrace is how long kubeadm init may take to install kube-proxy once
	// the cluster responds.
	kubeProxyGrace = time.Minute
)

// waitForClock waits until the clock is synchronized with the time servers. If
// the clock is wrong by an hour, certificates are not yet valid or have expired.
// If the servers do not respond, the clock may still be correct, so kubeadm runs
// anyway.
func (b *boot) waitForClock(ctx context.Context) error {
	if len(b.c.Machine.TimeServers) == 0 || !b.m.Has("timedatectl") {
		return nil
	}
	b.step(ctx, "Waiting for the clock to be synchronized")
	for until := b.m.Now().Add(clockTimeout); ; {
		synchronized, err := b.m.Output(ctx, "timedatectl", "show", "--property=NTPSynchronized", "--value")
		if err != nil || synchronized == "yes" {
			return nil //nolint:nilerr // no service knows the state of the clock
		}
		if !b.m.Now().Before(until) {
			b.clock = "; the clock is not synchronized with its time servers, it is at " + clockNow()
			b.m.Logf("The clock is not synchronized after %s", clockTimeout)
			return nil
		}
		if err := b.m.Sleep(ctx, poll); err != nil {
			return err
		}
	}
}

func clockNow() string { return time.Now().UTC().Format(time.RFC3339) }

// waitForCluster waits until kubeadm init is complete. Before that kubeadm join
// would fail because permissions are missing.
func (b *boot) waitForCluster(ctx context.Context) error {
	b.step(ctx, "Waiting for "+b.c.Join.Endpoint)
	client, err := cluster.New([]byte(b.c.Join.Kubeconfig))
	if err != nil {
		return err
	}
	for {
		err := client.HasConfigMap(ctx, "kubelet-config")
		if err == nil {
			break
		}
		if !b.m.Now().Before(b.giveUp) {
			b.m.Logf("%v", err)
			if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
				b.clock = "; its certificate or this machine's is not valid at " + clockNow() + ", the time of this machine's clock"
			}
			return fmt.Errorf("This machine could not join the cluster within %s: %s does not respond, or rejects this machine", b.since(b.begun), b.c.Join.Endpoint) //nolint:staticcheck // a sentence for people
		}
		if err := b.m.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	if !b.c.Join.KubeProxy {
		return nil
	}
	// kubeadm init installs kube-proxy last. A cluster that skips kube-proxy never
	// has it, so the wait is limited.
	for until := b.m.Now().Add(kubeProxyGrace); client.HasConfigMap(ctx, "kube-proxy") != nil && b.m.Now().Before(until); {
		if err := b.m.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}

// since returns the minutes since then, for messages.
func (b *boot) since(then time.Time) string {
	return fmt.Sprintf("%d min", int(b.m.Now().Sub(then).Minutes()))
}
