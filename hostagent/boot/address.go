package boot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// node has the properties of the node that only the machine knows.
type node struct {
	networkInterface string
	// addresses has one address for each IP version of the cluster.
	addresses  []string
	providerID string
}

func (n *node) ips() string { return strings.Join(n.addresses, ",") }

// findAddresses waits until the machine has an address of each IP version.
func (b *boot) findAddresses(ctx context.Context) error {
	for until := b.m.Now().Add(addressTimeout); !b.hasAddresses(ctx); {
		if !b.m.Now().Before(until) {
			where := "an interface with a default route"
			if b.c.Node.Interface != "" {
				where = b.c.Node.Interface
			}
			if len(b.c.Node.CIDRs) > 0 {
				where = strings.Join(b.c.Node.CIDRs, " ")
			}
			return fmt.Errorf("no address on %s", where)
		}
		if err := b.m.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}

func (b *boot) hasAddresses(ctx context.Context) bool {
	found := node{}
	for _, version := range b.c.Node.IPVersions {
		on, address := b.address(ctx, version)
		if address == "" {
			return false
		}
		if found.networkInterface == "" {
			found.networkInterface = on
		}
		found.addresses = append(found.addresses, address)
	}
	b.node = found
	return len(found.addresses) > 0
}

// address returns interface and address of the node for an IP version.
func (b *boot) address(ctx context.Context, version int) (on, address string) {
	if len(b.c.Node.CIDRs) == 0 {
		on = b.c.Node.Interface
		if on == "" {
			on = b.defaultInterface(ctx, version)
		}
		if on == "" {
			return "", ""
		}
		return b.first(ctx, version, "dev", on)
	}
	for _, cidr := range b.c.Node.CIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || prefix.Addr().Is4() != (version == ipv4) {
			continue
		}
		if on, address = b.first(ctx, version, "to", cidr); address != "" {
			return on, address
		}
	}
	return "", ""
}

const ipv4 = 4

// link is an interface in the output of ip.
type link struct {
	Name      string `json:"ifname"`
	Addresses []struct {
		Local      string `json:"local"`
		Tentative  bool   `json:"tentative"`
		Deprecated bool   `json:"deprecated"`
		Temporary  bool   `json:"temporary"`
	} `json:"addr_info"`
}

// first returns the first permanent address that ip lists for a filter.
func (b *boot) first(ctx context.Context, version int, filter ...string) (on, address string) {
	var links []link
	b.ip(ctx, &links, append([]string{fmt.Sprintf("-%d", version), "address", "show", "scope", "global"}, filter...)...)
	for _, l := range links {
		for _, a := range l.Addresses {
			if a.Local != "" && !a.Tentative && !a.Deprecated && !a.Temporary {
				return l.Name, a.Local
			}
		}
	}
	return "", ""
}

// defaultInterface returns the interface of the default route.
func (b *boot) defaultInterface(ctx context.Context, version int) string {
	type hop struct {
		Device string `json:"dev"`
	}
	// A route over several routers has a device for each of them.
	var routes []struct {
		hop
		Hops []hop `json:"nexthops"`
	}
	b.ip(ctx, &routes, fmt.Sprintf("-%d", version), "route", "show", "default")
	for _, r := range routes {
		for _, h := range append([]hop{r.hop}, r.Hops...) {
			if h.Device != "" {
				return h.Device
			}
		}
	}
	return ""
}

// ip runs the command. It prints nothing if nothing matches.
func (b *boot) ip(ctx context.Context, into any, args ...string) {
	out, err := b.m.Output(ctx, append([]string{"ip", "-json"}, args...)...)
	if err != nil || out == "" {
		return
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		b.m.Logf("Reading the output of ip: %v", err)
	}
}

// fill replaces the variables in a text. An unknown provider ID is left out, with
// the name of its argument.
func (b *boot) fill(text, token string) string {
	if b.node.providerID == "" {
		text = withoutProviderID(text)
	}
	return strings.NewReplacer(
		nodeconfig.ProviderID, b.node.providerID,
		nodeconfig.NodeIP, b.node.ips(),
		nodeconfig.AdvertiseAddress, b.node.addresses[0],
		nodeconfig.Interface, b.node.networkInterface,
		nodeconfig.Token, token,
	).Replace(text)
}

func withoutProviderID(text string) string {
	lines := strings.SplitAfter(text, "\n")
	out := &strings.Builder{}
	for i := 0; i < len(lines); i++ {
		if strings.HasSuffix(strings.TrimRight(lines[i], "\n"), "name: provider-id") && i+1 < len(lines) && strings.Contains(lines[i+1], nodeconfig.ProviderID) {
			i++
			continue
		}
		out.WriteString(lines[i])
	}
	return out.String()
}
