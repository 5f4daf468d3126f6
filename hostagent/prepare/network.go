package prepare

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	resolvedConfig       = "/etc/systemd/resolved.conf.d/90-nova.conf"
	networkManagerConfig = "/etc/NetworkManager/conf.d/90-nova.conf"
	resolverConfig       = "/etc/resolv.conf"
	timesyncdConfig      = "/etc/systemd/timesyncd.conf.d/90-nova.conf"
)

// nameServers configures the name servers for this machine, and no others. Without
// any, it restores the configuration of the image.
func nameServers(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	restartResolved := func() error { return m.Run(ctx, "systemctl", "restart", "systemd-resolved") }
	reloadNetworkManager := func() error { return m.Run(ctx, "systemctl", "reload", "NetworkManager") }
	if len(c.NameServers) == 0 {
		return errors.Join(
			restore(m, resolvedConfig, restartResolved),
			restore(m, networkManagerConfig, reloadNetworkManager),
			restore(m, resolverConfig, func() error { return nil }),
		)
	}
	switch {
	case active(ctx, m, "systemd-resolved"):
		// The domain ~. takes precedence over the servers of single links.
		domains := strings.Join(append([]string{"~."}, c.SearchDomains...), " ")
		text := fmt.Sprintf("[Resolve]\nDNS=%s\nDomains=%s\n", strings.Join(c.NameServers, " "), domains)
		if err := replace(m, resolvedConfig, text); err != nil {
			return err
		}
		return restartResolved()
	case active(ctx, m, "NetworkManager"):
		text := fmt.Sprintf("[global-dns]\nsearches=%s\n[global-dns-domain-*]\nservers=%s\n", strings.Join(c.SearchDomains, ","), strings.Join(c.NameServers, ","))
		if err := replace(m, networkManagerConfig, text); err != nil {
			return err
		}
		return reloadNetworkManager()
	}
	text := &strings.Builder{}
	for _, server := range c.NameServers {
		fmt.Fprintf(text, "nameserver %s\n", server)
	}
	if len(c.SearchDomains) > 0 {
		fmt.Fprintf(text, "search %s\n", strings.Join(c.SearchDomains, " "))
	}
	// This replaces a link, too.
	return replace(m, resolverConfig, text.String())
}

func active(ctx context.Context, m *machine.Machine, service string) bool {
	_, err := m.Output(ctx, "systemctl", "is-active", "--quiet", service)
	return err == nil
}

// timeServers configures the time synchronization service of the system. Without
// servers, it restores the configuration of the image.
func timeServers(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	file, services := timesyncdConfig, []string{"systemd-timesyncd"}
	text := fmt.Sprintf("[Time]\nNTP=%s\n", strings.Join(c.TimeServers, " "))
	if m.Has("chronyd") {
		file, services = "/etc/chrony.conf", []string{"chronyd", "chrony"}
		if !m.Exists(file) {
			file = "/etc/chrony/chrony.conf"
		}
		// An image without the file has the default servers of chrony.
		text = chrony(ofImage(m, file), c.TimeServers)
	}
	if len(c.TimeServers) == 0 {
		return restore(m, file, func() error { return restartTime(ctx, m, services) })
	}
	if err := replace(m, file, text); err != nil {
		return err
	}
	return restartTime(ctx, m, services)
}

// restartTime restarts the first of these services that the system has. A service
// that does not start is only logged: the clock may be right.
func restartTime(ctx context.Context, m *machine.Machine, services []string) error {
	for _, service := range services {
		if m.Run(ctx, "systemctl", "restart", service) == nil {
			return nil
		}
	}
	m.Logf("No time synchronization service could be started")
	return ctx.Err() //nolint:wrapcheck // the caller wraps it
}

// chrony returns chrony's configuration with these servers instead of its own.
func chrony(text string, servers []string) string {
	out := &strings.Builder{}
	for line := range strings.Lines(text) {
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "pool", "server", "sourcedir":
		default:
			out.WriteString(line)
		}
	}
	if text != "" && !strings.HasSuffix(out.String(), "\n") && out.Len() > 0 {
		out.WriteString("\n")
	}
	for _, server := range servers {
		fmt.Fprintf(out, "server %s iburst\n", server)
	}
	return out.String()
}
