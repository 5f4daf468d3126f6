package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	grubDir = "/etc/default/grub.d"
	// Rebooted exists once the machine was rebooted for its kernel arguments.
	Rebooted = "/var/lib/nova/rebooted"
)

// kernelArguments makes the boot loader start the kernel with the arguments. If
// one is missing, the machine must be rebooted, once.
func kernelArguments(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	running := strings.Fields(m.Read("/proc/cmdline"))
	missing := slices.DeleteFunc(slices.Clone(c.KernelArguments), func(argument string) bool { return slices.Contains(running, argument) })
	if len(missing) == 0 {
		return nil
	}
	text := strings.Join(missing, " ")
	if m.Exists(Rebooted) {
		return fmt.Errorf("the kernel was started without %s: the boot loader of the image does not pass the kernel arguments", text)
	}
	if err := setArguments(ctx, m, text); err != nil {
		return err
	}
	if err := m.Write(Rebooted, "", 0o600); err != nil {
		return err
	}
	return ErrReboot
}

func setArguments(ctx context.Context, m *machine.Machine, text string) error {
	info, err := os.Stat(m.At(grubDir))
	switch {
	case m.Has("grubby"):
		return m.Run(ctx, "grubby", "--update-kernel=ALL", "--args="+text)
	case err == nil && info.IsDir() && m.Has("update-grub"):
		setting := fmt.Sprintf("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX %s\"\n", text)
		if err := m.Write(grubDir+"/90-nova.cfg", setting, 0o644); err != nil {
			return err
		}
		return m.Run(ctx, "update-grub")
	}
	return fmt.Errorf("the image has no supported boot loader, so the kernel cannot be started with %s", text)
}

// kernel loads modules and sets parameters, now and at each boot.
func kernel(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	var errs []error
	if len(c.KernelModules) > 0 {
		errs = append(errs, m.Write("/etc/modules-load.d/90-nova.conf", strings.Join(c.KernelModules, "\n")+"\n", 0o644))
		for _, module := range c.KernelModules {
			errs = append(errs, m.Run(ctx, "modprobe", module))
		}
	}
	if len(c.Sysctls) > 0 {
		const file = "/etc/sysctl.d/90-nova.conf"
		settings := &strings.Builder{}
		for _, s := range c.Sysctls {
			fmt.Fprintf(settings, "%s = %s\n", s.Name, s.Value)
		}
		errs = append(errs, m.Write(file, settings.String(), 0o644), m.Run(ctx, "sysctl", "-p", m.At(file)))
	}
	return errors.Join(errs...)
}
