package prepare

import (
	"context"
	"fmt"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// nameServers configures the name servers for this machine, and no others.
func nameServers(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	if len(c.NameServers) == 0 {
		return nil
	}
	switch {
	case active(ctx, m, "systemd-resolved"):
		// The domain ~. takes precedence over the servers of single links.
		domains := strings.Join(append([]string{"~."}, c.SearchDomains...), " ")
		text := fmt.Sprintf("[Resolve]\nDNS=%s\nDomains=%s\n", strings.Join(c.NameServers, " "), domains)
		if err := m.Write("/etc/systemd/resolved.conf.d/90-nova.conf", text, 0o644); err != nil {
			return err
		}
		return m.Run(ctx, "systemctl", "restart", "systemd-resolved")
	case active(ctx, m, "NetworkManager"):
		text := fmt.Sprintf("[global-dns]\nsearches=%s\n[global-dns-domain-*]\nservers=%s\n", strings.Join(c.SearchDomains, ","), strings.Join(c.NameServers, ","))
		if err := m.Write("/etc/NetworkManager/conf.d/90-nova.conf", text, 0o644); err != nil {
			return err
		}
		return m.Run(ctx, "systemctl", "reload", "NetworkManager")
	}
	text := &strings.Builder{}
	for _, server := range c.NameServers {
		fmt.Fprintf(text, "nameserver %s\n", server)
	}
	if len(c.SearchDomains) > 0 {
		fmt.Fprintf(text, "search %s\n", strings.Join(c.SearchDomains, " "))
	}
	// This replaces a link, too.
	return m.Write("/etc/resolv.conf", text.String(), 0o644)
}

func active(ctx context.Context, m *machine.Machine, service string) bool {
	_, err := m.Output(ctx, "systemctl", "is-active", "--quiet", service)
	return err == nil
}

// timeServers configures the time synchronization service of the system. A
// service that does not start is only logged: the clock may be right.
func timeServers(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	if len(c.TimeServers) == 0 {
		return nil
	}
	var services []string
	if m.Has("chronyd") {
		file := "/etc/chrony.conf"
		if !m.Exists(file) {
			file = "/etc/chrony/chrony.conf"
		}
		// An image without the file has the default servers of chrony.
		if err := m.Edit(file, chrony(m.Read(file), c.TimeServers), 0o644); err != nil {
			return err
		}
		services = []string{"chronyd", "chrony"}
	} else {
		text := fmt.Sprintf("[Time]\nNTP=%s\n", strings.Join(c.TimeServers, " "))
		if err := m.Write("/etc/systemd/timesyncd.conf.d/90-nova.conf", text, 0o644); err != nil {
			return err
		}
		services = []string{"systemd-timesyncd"}
	}
	for _, service := range services {
		if m.Run(ctx, "systemctl", "restart", service) == nil {
			return nil
		}
	}
	m.Logf("No time synchronization service could be started")
	return nil
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
