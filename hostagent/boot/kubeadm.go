package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/guest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/keys"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	kubeadmFile = nodeconfig.RunDir + "/kubeadm.yaml"
	kubeletConf = kubernetes + "/kubelet.conf"
	manifests   = kubernetes + "/manifests"
	kubeVIP     = manifests + "/kube-vip.yaml"
	// kubeVIPConf is a link to the kubeconfig that kube-vip uses.
	kubeVIPConf = kubernetes + "/kube-vip.conf"

	// attempts is the number of attempts of kubeadm, and pause the time between
	// them.
	attempts = 10
	pause    = 10 * time.Second
)

// kubeadm runs kubeadm init or join.
func (b *boot) kubeadm(ctx context.Context) error {
	token := ""
	if b.c.Join.Init {
		// The phase that creates the permissions for joining nodes requires a
		// token. This one is random, and expires after a second.
		var err error
		if token, err = b.m.Output(ctx, "kubeadm", "token", "generate"); err != nil {
			return err
		}
	}
	if err := b.m.Write(kubeadmFile, b.fill(b.c.Join.Kubeadm, token), 0o600); err != nil {
		return err
	}
	if err := b.writeKubeVIP(); err != nil {
		return err
	}
	// From here on, a reset ends the attempt to make this machine a node.
	b.host.Forget(ctx, b.m)
	if b.c.Join.Init {
		if err := b.certificates(ctx); err != nil {
			return err
		}
		b.step(ctx, "Running kubeadm init")
		if err := b.init(ctx); err != nil {
			return err
		}
		return errors.Join(b.restrictKubeVIP(), b.rejectAuthorities())
	}
	if err := b.m.Write(nodeconfig.DiscoveryFile, b.c.Join.Kubeconfig, 0o600); err != nil {
		return err
	}
	if err := b.waitForCluster(ctx); err != nil {
		return err
	}
	if err := b.certificates(ctx); err != nil {
		return err
	}
	b.step(ctx, "Running kubeadm join")
	return errors.Join(b.join(ctx), b.rejectAuthorities())
}

// certificates gives a control plane machine its certificates, if kubeadm has no keys of
// CAs to make them with. A machine that gets them from a vault has credentials that
// are valid once: if the agent was stopped meanwhile, the machine is replaced.
func (b *boot) certificates(ctx context.Context) error {
	want := b.c.Certificates
	if want == nil {
		return nil
	}
	b.step(ctx, "Requesting certificates")
	node, err := keys.NodeOf(b.c.Node.Name, b.node.ips(), b.c.Join.Init)
	if err != nil {
		return err
	}
	return keys.Ensure(ctx, b.m, want, node, func() (keys.Signer, error) {
		if b.c.Vault != nil {
			return keys.SignIn(ctx, b.m, b.c.Vault, b.giveUp)
		}
		client, err := cluster.New([]byte(b.c.Join.Kubeconfig))
		if err != nil {
			return nil, err
		}
		return &keys.Requests{Machine: b.m, Client: client, Node: b.c.Node.Name, Until: b.giveUp}, nil
	})
}

// rejectAuthorities fails if kubeadm has created a CA.
func (b *boot) rejectAuthorities() error {
	if b.c.Certificates == nil {
		return nil
	}
	return keys.RejectAuthorities(b.m)
}

// run runs kubeadm until a deadline. The flag for phases overrides the document.
func (b *boot) runKubeadm(ctx context.Context, verb string, until time.Time, skip []string) error {
	ctx, cancel := context.WithTimeout(ctx, max(until.Sub(b.m.Now()), time.Second))
	defer cancel()
	args := []string{"kubeadm", verb, "--config", b.m.At(kubeadmFile), "--v=" + strconv.Itoa(b.c.Join.Verbosity)}
	if len(skip) > 0 {
		args = append(args, "--skip-phases="+strings.Join(skip, ","))
	}
	return b.m.Run(ctx, args...)
}

// init runs kubeadm init, and repeats only its last phases: CAs and etcd are
// created once. The phase that starts the kubelet is repeated too, since it may
// have failed before the kubelet started.
func (b *boot) init(ctx context.Context) error {
	var skip []string
	for attempt := 1; ; attempt++ {
		before := b.logSize()
		err := b.runKubeadm(ctx, "init", b.giveUp, skip)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case !b.onlyLastPhasesLeft(before):
			return fmt.Errorf("kubeadm init failed after %s", b.since(b.begun))
		case attempt == attempts || !b.m.Now().Add(pause).Before(b.giveUp):
			return fmt.Errorf("kubeadm init did not succeed within %s, in %d attempts", b.since(b.begun), attempt)
		}
		if err := b.retry(ctx, "init", attempt); err != nil {
			return err
		}
		skip = append([]string{"preflight", "certs", "kubeconfig", "etcd", "control-plane"}, b.c.Join.SkipPhases...)
	}
}

// retry reports a failed attempt, and waits.
func (b *boot) retry(ctx context.Context, verb string, attempt int) error {
	text := fmt.Sprintf("kubeadm %s failed, attempt %d of %d", verb, attempt, attempts)
	b.host.Report(ctx, b.m, guest.Retrying, text, logOf(b.m))
	b.m.Logf("%s", text)
	return b.m.Sleep(ctx, pause)
}

func (b *boot) logSize() int64 {
	info, err := os.Stat(b.m.At(Log))
	if err != nil {
		return 0
	}
	return info.Size()
}

// onlyLastPhasesLeft reports whether a failed kubeadm init had written all files
// and reached the API server. The remaining phases only write objects to that
// server, so they can be repeated. If the API server did not start, the machine
// does not wait again: another machine may succeed.
func (b *boot) onlyLastPhasesLeft(logFrom int64) bool {
	for _, file := range []string{"kubelet.conf", "manifests/kube-apiserver.yaml", "manifests/kube-controller-manager.yaml", "manifests/kube-scheduler.yaml"} {
		if !b.m.Exists(path.Join(kubernetes, file)) {
			return false
		}
	}
	log := b.m.Read(Log)
	return !strings.Contains(log[min(logFrom, int64(len(log))):], "error execution phase wait-control-plane")
}

// writeKubeVIP writes the manifest of kube-vip. On the first machine it names a
// link in place of super-admin.conf.
func (b *boot) writeKubeVIP() error {
	if b.c.Join.KubeVIP == "" {
		return nil
	}
	pod := b.fill(b.c.Join.KubeVIP, "")
	if !b.c.Join.Init {
		return b.m.Write(kubeVIP, pod, 0o600)
	}
	if err := b.m.Link(kubeVIPConf, "super-admin.conf"); err != nil {
		return err
	}
	return b.m.Write(kubeVIP, strings.ReplaceAll(pod, kubernetes+"/super-admin.conf", kubeVIPConf), 0o600)
}

// restrictKubeVIP takes the administrator permissions from kube-vip, which needs
// them only until kubeadm init has granted permissions to admin.conf. kube-vip
// uses the other file from its next start. Its manifest stays as it is: to replace
// the pod, the kubelet would stop it for more than ten seconds, and all machines
// that join would wait for the endpoint.
func (b *boot) restrictKubeVIP() error {
	if b.c.Join.KubeVIP == "" {
		return nil
	}
	return b.m.Link(kubeVIPConf, "admin.conf")
}

// join runs kubeadm join, and continues failed attempts.
func (b *boot) join(ctx context.Context) error {
	skip, since := b.c.Join.SkipPhases, b.m.Now()
	until := since.Add(b.c.Join.JoinTimeout())
	if b.giveUp.Before(until) {
		until = b.giveUp
	}
	for attempt := 1; ; attempt++ {
		err := b.runKubeadm(ctx, "join", until, skip)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case attempt == attempts:
			return errors.Join(fmt.Errorf("kubeadm join failed %d times", attempts), b.stopJoining(ctx))
		case !b.m.Now().Add(pause).Before(until):
			return errors.Join(fmt.Errorf("kubeadm join did not succeed within %s, in %d attempts", b.since(since), attempt), b.stopJoining(ctx))
		}
		if err := b.retry(ctx, "join", attempt); err != nil {
			return err
		}
		if skip, err = b.prepareRetry(ctx); err != nil {
			return err
		}
	}
}

// stopJoining stops the kubelet, so that nothing tries to make this machine a
// node after its failure was reported.
func (b *boot) stopJoining(ctx context.Context) error {
	if b.m.Exists(kubeletConf) {
		return nil
	}
	return b.m.Run(ctx, "systemctl", "stop", "kubelet")
}

// prepareRetry makes a failed join repeatable, and returns the phases to skip.
// It reverts nothing that other nodes can see: the next attempt uses an etcd
// member that was already added.
func (b *boot) prepareRetry(ctx context.Context) ([]string, error) {
	var skip []string
	switch {
	case b.m.Exists(kubeletConf):
		// The kubelet has its own certificate: only the later phases are left.
		skip = []string{"preflight", "control-plane-prepare", "kubelet-start"}
	case b.c.Node.ControlPlane && b.m.Exists(manifests+"/kube-scheduler.yaml"):
		// The control plane's files are complete, and preflight checks would fail
		// because the files exist.
		skip = []string{"preflight", "control-plane-prepare"}
	default:
		if err := b.m.Run(ctx, "systemctl", "stop", "kubelet"); err != nil {
			b.m.Logf("The kubelet keeps running: %v", err)
		}
		files := []string{kubernetes + "/bootstrap-kubelet.conf", kubernetes + "/pki/ca.crt"}
		if b.c.Node.ControlPlane {
			files = []string{kubernetes + "/bootstrap-kubelet.conf", manifests + "/kube-apiserver.yaml", manifests + "/kube-controller-manager.yaml"}
		}
		if err := b.m.Remove(files...); err != nil {
			return nil, fmt.Errorf("deleting files of the failed attempt: %w", err)
		}
	}
	return slices.Concat(skip, b.c.Join.SkipPhases), nil
}
