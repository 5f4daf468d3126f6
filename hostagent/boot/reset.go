package boot

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/guest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/prepare"
)

const (
	// bootingDir exists during the first boot, and stageFile contains the stage that
	// a reset is reported with. They contain no credentials.
	bootingDir = "/var/lib/nova/booting"
	stageFile  = bootingDir + "/stage"
	resetUnit  = "nova-restarted.service"
	units      = "/etc/systemd/system/"
	// joining is the stage of a worker until kubeadm has ended: its kubelet may
	// join without kubeadm.
	joining = "joining"
	// rebootTimeout is how long a system may take to shut down.
	rebootTimeout = 10 * time.Minute
)

// resetUnitText is the unit that reports a reset, and bootUnitText the unit that
// continues after a reboot for kernel arguments.
var (
	//go:embed nova-restarted.service
	resetUnitText string
	//go:embed nova-bootstrap.service
	bootUnitText string
)

// installResetReport installs a unit that reports a reset to the hypervisor, if
// the machine is reset before the end: the configuration is deleted by then, so
// nothing continues the first boot.
func (b *boot) installResetReport(ctx context.Context) error {
	stage := joining
	if b.c.Node.ControlPlane {
		stage = string(guest.Failed)
	}
	if err := b.m.Mkdir(bootingDir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(b.m.Write(stageFile, stage+"\n", 0o600), writeUnit(b.m, resetUnit, resetUnitText)); err != nil {
		return err
	}
	if err := b.m.Run(ctx, "systemctl", "--quiet", "enable", resetUnit); err != nil {
		return err
	}
	return b.m.Flush(ctx)
}

// writeUnit writes a unit that runs this program.
func writeUnit(m *machine.Machine, name, text string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	return m.Write(units+name, strings.ReplaceAll(text, "__NOVA_HOST_AGENT__", self), 0o644)
}

// removeResetReport removes the unit: the result is reported.
func (b *boot) removeResetReport(ctx context.Context) { removeResetUnit(ctx, b.m) }

func removeResetUnit(ctx context.Context, m *machine.Machine) {
	if err := errors.Join(m.Run(ctx, "systemctl", "--quiet", "disable", resetUnit), m.Remove(bootingDir, units+resetUnit)); err != nil {
		m.Logf("The next start will report a reset: %v", err)
	}
}

// reboot reboots the machine for its kernel arguments, and keeps the
// configuration for the next boot.
func (b *boot) reboot(ctx context.Context) error {
	if err := b.m.Mkdir(path.Dir(nodeconfig.KeptConfigFile), 0o700); err != nil {
		return err
	}
	text, err := b.m.Load(nodeconfig.ConfigFile)
	if err != nil {
		return err
	}
	if err := b.m.Write(nodeconfig.KeptConfigFile, text, 0o600); err != nil {
		return err
	}
	if err := writeUnit(b.m, unit, bootUnitText); err != nil {
		return err
	}
	if err := b.m.Run(ctx, "systemctl", "enable", unit); err != nil {
		return err
	}
	b.m.Logf("Rebooting with the kernel arguments %s", strings.Join(b.c.Machine.KernelArguments, " "))
	if err := b.m.Run(ctx, "systemctl", "reboot"); err != nil {
		return err
	}
	// Nothing else may run until the system reboots.
	if err := b.m.Sleep(ctx, rebootTimeout); err != nil {
		return err
	}
	return fmt.Errorf("the system did not reboot within %s", rebootTimeout)
}

// ReportReset reports to the hypervisor that the machine was restarted during
// its first boot, which nothing continues.
func ReportReset(ctx context.Context, m *machine.Machine) error {
	// The first boot starts again if its data is present: cloud-init may treat
	// each boot as the first, or the agent has rebooted the machine for kernel
	// arguments.
	if m.Exists(nodeconfig.ConfigFile) || m.Exists(nodeconfig.KeptConfigFile) && enabled(ctx, m, unit) {
		return nil
	}
	stage := strings.TrimSpace(m.Read(stageFile))
	node := m.Exists(kubeletConf)
	// A kubelet with a certificate makes a worker a node without kubeadm.
	if stage == joining && node && enabled(ctx, m, "kubelet.service") {
		stage = string(guest.Unfinished)
	}
	host := guest.Of(m)
	if stage == string(guest.Unfinished) {
		host.Report(ctx, m, guest.Unfinished, "The machine was restarted before its first boot was complete", logOf(m))
	} else {
		// The machine is reported as failed, so its kubelet must not continue.
		if !node {
			err := errors.Join(m.Run(ctx, "systemctl", "--quiet", "disable", "--now", "kubelet.service"), m.Remove(kubernetes+"/bootstrap-kubelet.conf"))
			if err != nil {
				m.Logf("The kubelet may run: %v", err)
			}
		}
		host.Report(ctx, m, guest.Failed, "The machine was restarted before it became a node", logOf(m))
	}
	removeResetUnit(ctx, m)
	return m.Remove(path.Dir(nodeconfig.KeptConfigFile), prepare.Rebooted)
}

func enabled(ctx context.Context, m *machine.Machine, unit string) bool {
	_, err := m.Output(ctx, "systemctl", "is-enabled", "--quiet", unit)
	return err == nil
}
