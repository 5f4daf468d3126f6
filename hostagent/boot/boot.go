package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/follow"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/guest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/prepare"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/puppet"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/restore"
)

const (
	// Log is the log of the first boot.
	Log = "/var/log/nova-bootstrap.log"

	kubernetes = "/etc/kubernetes"
	// sentinel is the file that Cluster API expects on a node.
	sentinel = "/run/cluster-api/bootstrap-success.complete"
	// unit runs the agent on the next boot.
	unit = "nova-bootstrap.service"

	// addressTimeout is how long a network may take to give the machine an
	// address.
	addressTimeout = 5 * time.Minute
	// poll is the interval of all waits here.
	poll = time.Second
	// maxLog limits the part of the log that is read for a report, in bytes.
	maxLog = 64 << 10
)

// boot is one first boot.
type boot struct {
	m    *machine.Machine
	host *guest.Hypervisor
	c    *nodeconfig.Config
	// begun is when it began. The control plane waits until giveUp for a
	// machine; a machine that joins later could cost etcd its quorum.
	begun, giveUp time.Time
	// stage is the stage of a failure: a machine that kubeadm has made a node is
	// not reported as failed.
	stage guest.Stage
	// clock describes a problem of the machine's clock, for the report.
	clock string
	// addresses of the node, and the provider ID.
	node node
}

// Run makes the machine a node. The error of a failure is reported to the
// hypervisor.
func Run(ctx context.Context, m *machine.Machine) error {
	log, err := os.OpenFile(m.At(Log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer func() { _ = log.Close() }()
	b := &boot{m: m.Logging(log), stage: guest.Failed, begun: started(m)}
	b.host = guest.Of(b.m)
	err = b.safely(ctx)
	if errors.Is(err, prepare.ErrReboot) {
		// It returns if the system does not reboot.
		err = b.reboot(ctx)
		_ = b.m.Remove(path.Dir(nodeconfig.KeptConfigFile)) // it has credentials
	}
	if err != nil {
		b.host.Report(ctx, b.m, b.stage, err.Error()+b.clock, logOf(b.m))
		b.m.Logf("FAILED: %v%s", err, b.clock)
	}
	b.removeResetReport(ctx)
	return err
}

// safely runs the first boot, and reports a panic as its failure.
func (b *boot) safely(ctx context.Context) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			b.m.Logf("%s", debug.Stack())
			err = fmt.Errorf("the host agent failed: %v", problem)
		}
	}()
	return b.run(ctx)
}

func (b *boot) run(ctx context.Context) error {
	if err := b.load(); err != nil {
		return err
	}
	if err := b.installResetReport(ctx); err != nil {
		b.m.Logf("A reset would not be reported: %v", err)
	}
	b.giveUp = b.begun.Add(b.c.Join.ClusterTimeout())
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.kubeadm(ctx); err != nil {
		return err
	}
	b.stage = guest.Unfinished
	if err := errors.Join(b.m.Write(stageFile, string(guest.Unfinished)+"\n", 0o600), b.m.Flush(ctx)); err != nil {
		b.m.Logf("A reset would be reported as failed: %v", err)
	}
	if err := b.m.Remove(kubeadmFile, nodeconfig.DiscoveryFile, nodeconfig.ConfigFile); err != nil {
		b.m.Logf("Credentials stay in memory: %v", err)
	}
	b.forgetBootstrapData(ctx)
	if err := b.finish(ctx); err != nil {
		return err
	}
	if b.c.Follow {
		b.step(ctx, "Starting the host agent")
		node := follow.Node{Name: b.c.Node.Name, Addresses: b.node.ips(), ProviderID: b.node.providerID}
		settings := &nodeconfig.Settings{Node: b.c.Node.Name, Machine: nodeconfig.WithoutKeys(b.c.Machine), Kubelet: b.c.Kubelet, Components: b.c.Components, Kubernetes: b.c.Kubernetes}
		if err := follow.Start(ctx, b.m, node, settings); err != nil {
			return err
		}
	}
	if manager := b.c.ConfigurationManager; manager != nil {
		b.step(ctx, "Starting Puppet's agent")
		if err := puppet.Start(ctx, b.m, b.c.Node.Name, manager); err != nil {
			return err
		}
	}
	if err := b.m.Write(sentinel, "success\n", 0o644); err != nil {
		return err
	}
	b.host.Done(ctx, b.m)
	b.m.Logf("Done")
	return nil
}

// load reads the configuration. One that was kept on the disk is moved to the
// memory.
func (b *boot) load() error {
	if b.m.Exists(nodeconfig.KeptConfigFile) {
		kept, err := b.m.Load(nodeconfig.KeptConfigFile)
		if err != nil {
			return err
		}
		if err := b.m.Write(nodeconfig.ConfigFile, kept, 0o600); err != nil {
			return err
		}
		if err := b.m.Remove(path.Dir(nodeconfig.KeptConfigFile)); err != nil {
			return fmt.Errorf("deleting the configuration on the disk: %w", err)
		}
	}
	file, err := os.Open(b.m.At(nodeconfig.ConfigFile))
	if err != nil {
		return fmt.Errorf("opening the node's configuration: %w", err)
	}
	defer func() { _ = file.Close() }()
	b.c, err = nodeconfig.Read(file)
	return err
}

// prepare finds the node's addresses, and applies the settings and the user's
// commands.
func (b *boot) prepare(ctx context.Context) error {
	mode := "join"
	if b.c.Join.Init {
		mode = "init"
	}
	b.m.Logf("Making %s a node (%s)", b.c.Node.Name, mode)
	if err := b.findAddresses(ctx); err != nil {
		return err
	}
	b.node.providerID = b.host.ProviderID(b.m)
	known := b.node.providerID
	if known == "" {
		known = "unknown"
	}
	b.m.Logf("Address %s on %s, provider ID %s", b.node.ips(), b.node.networkInterface, known)
	b.m = b.m.With("NODE_NAME="+b.c.Node.Name, "NODE_IP="+b.node.ips(), "NODE_INTERFACE="+b.node.networkInterface, "PROVIDER_ID="+b.node.providerID)
	b.c.Machine.SetNodeIP(b.node.ips())
	b.step(ctx, "Setting up the system")
	if err := prepare.Apply(ctx, b.m, &b.c.Machine); err != nil {
		return err
	}
	if err := b.commands(ctx, "preKubeadmCommands", b.c.Join.Before); err != nil {
		return err
	}
	if err := b.waitForClock(ctx); err != nil {
		return err
	}
	if b.c.Kubernetes.Version != "" {
		if err := follow.InstallVersion(ctx, b.m, &b.c.Kubernetes); err != nil {
			return fmt.Errorf("getting Kubernetes %s: %w", b.c.Kubernetes.Version, err)
		}
	}
	if r := b.c.Join.Restore; r != nil {
		b.step(ctx, "Restoring etcd")
		if err := restore.Run(ctx, b.m, r, restore.Node{Name: b.c.Node.Name, Address: b.node.addresses[0]}); err != nil {
			return fmt.Errorf("restoring etcd: %w", err)
		}
	}
	return nil
}

// step reports a step that is in progress.
func (b *boot) step(ctx context.Context, text string) {
	b.m.Logf("%s", text)
	b.host.Report(ctx, b.m, guest.Running, text, "")
}

// commands runs the user's commands in order, each in its own shell.
func (b *boot) commands(ctx context.Context, name string, commands []string) error {
	const file = nodeconfig.RunDir + "/command"
	for i, command := range commands {
		title := fmt.Sprintf("%s %04d", name, i)
		b.m.Logf("Running %s", title)
		b.host.Report(ctx, b.m, guest.Running, title, "")
		// The command line of a process is public.
		if err := b.m.Write(file, strings.TrimSuffix(command, "\n")+"\n", 0o600); err != nil {
			return err
		}
		if err := b.m.Run(ctx, "sh", b.m.At(file)); err != nil {
			return fmt.Errorf("%s failed with status %d", title, machine.Status(err))
		}
	}
	return b.m.Remove(file)
}

// started returns when the first boot began: the download of this program counts,
// too. The script that starts it passes the uptime of the machine, in seconds.
func started(m *machine.Machine) time.Time {
	now, err := strconv.ParseFloat(strings.SplitN(m.Read("/proc/uptime")+" ", " ", 2)[0], 64) //nolint:mnd // the first word
	then, missing := strconv.ParseFloat(m.Getenv("NOVA_BOOT_STARTED"), 64)
	if err != nil || missing != nil || then > now {
		return m.Now()
	}
	return m.Now().Add(-time.Duration((now - then) * float64(time.Second)))
}

// logOf returns the end of the log.
func logOf(m *machine.Machine) string {
	file, err := os.Open(m.At(Log))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > maxLog {
		_, _ = file.Seek(-maxLog, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(file, maxLog))
	return string(text)
}
