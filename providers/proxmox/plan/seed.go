package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"sigs.k8s.io/yaml"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
)

// Formats of bootstrap data.
const (
	cloudConfig = "cloud-config"
	ignition    = "ignition"
)

// MaxUserData limits the bootstrap data.
const MaxUserData = 1 << 20

// Seed is the input of the first boot of a machine.
type Seed struct {
	Mark  Mark
	Image []byte
}

// ImageName is the file name of the image with the bootstrap data.
func ImageName(id uuid.UUID) string { return "nova-" + id.String() + ".iso" }

// ImageOwner returns the ID of the machine that an image was uploaded for.
func ImageOwner(volume string) (uuid.UUID, bool) {
	_, name, _ := strings.Cut(volume, ":iso/nova-")
	text, ok := strings.CutSuffix(name, ".iso")
	id, err := uuid.Parse(text)
	return id, ok && err == nil
}

// ethernet is an interface in the network configuration of cloud-init, version 2.
type ethernet struct {
	Match       map[string]string `json:"match"`
	SetName     string            `json:"set-name,omitempty"`
	DHCP4       bool              `json:"dhcp4"`
	DHCP6       bool              `json:"dhcp6"`
	Addresses   []string          `json:"addresses,omitempty"`
	Gateway4    string            `json:"gateway4,omitempty"`
	Gateway6    string            `json:"gateway6,omitempty"`
	Nameservers *nameservers      `json:"nameservers,omitempty"`
	MTU         int32             `json:"mtu,omitempty"`
}

type nameservers struct {
	Addresses []string `json:"addresses,omitempty"`
	Search    []string `json:"search,omitempty"`
}

// NewSeed returns the mark and the image of a machine. Where the VM is created, and
// with it the storage of the image, is not known yet.
func NewSeed(clusterID string, c *proxmoxv1.NovaProxmoxClusterSpec, m *proxmoxv1.NovaProxmoxMachine, s *Settings, l hypervisor.CreateOptions, id uuid.UUID) (Seed, error) {
	format := cmp.Or(l.Format, cloudConfig)
	switch {
	case format != cloudConfig && format != ignition:
		return Seed{}, kit.InvalidSpec("the format %q of the bootstrap data is neither %s nor %s", l.Format, cloudConfig, ignition)
	case len(l.UserData) > MaxUserData:
		return Seed{}, kit.InvalidSpec("the bootstrap data has %d bytes, and at most %d can be used", len(l.UserData), MaxUserData)
	}
	out := Seed{Mark: Mark{ID: id}}
	if out.Mark.Group, _ = GroupOf(clusterID, c, m); l.Zone != "" {
		out.Mark.Zone = hashed(l.Zone)
	}
	if m.Spec.VMName(m) != m.Name {
		out.Mark.Machine = m.Name
	}
	network := map[string]ethernet{}
	for i := range s.Interfaces {
		in := &s.Interfaces[i]
		e := ethernet{
			Match: map[string]string{"macaddress": strings.ToLower(MAC(id, in, i))}, SetName: in.DeviceName, MTU: in.MTU,
			DHCP4: in.UsesDHCP4(), DHCP6: in.UsesDHCP6(), Gateway4: in.Gateway4, Gateway6: in.Gateway6,
		}
		if len(in.Nameservers)+len(in.SearchDomains) > 0 {
			e.Nameservers = &nameservers{in.Nameservers, in.SearchDomains}
		}
		all, err := kit.StaticAddresses(l.Pooled(i), in.Addresses, i)
		if err != nil {
			return Seed{}, err
		}
		for _, a := range all {
			e.add(a)
			out.Mark.Addresses = append(out.Mark.Addresses, a.Prefix.Addr().Unmap())
		}
		network[fmt.Sprintf("nic%d", i)] = e
	}
	if format == ignition && len(out.Mark.Addresses) > 0 {
		return Seed{}, kit.InvalidSpec("bootstrap data for Ignition has no network configuration: use DHCP, or the format %s", cloudConfig)
	}
	config, err := yaml.Marshal(map[string]any{"version": 2, "ethernets": network})
	if err != nil {
		return Seed{}, fmt.Errorf("writing network configuration: %w", err)
	}
	meta := fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\n", id, m.Name)
	out.Image = Image("cidata", File{"meta-data", []byte(meta)}, File{"network-config", config}, File{"user-data", l.UserData})
	return out, nil
}

// add adds a static address.
func (e *ethernet) add(a hypervisor.Address) {
	e.Addresses = append(e.Addresses, a.Prefix.String())
	if !a.Gateway.IsValid() {
		return
	}
	if a.Gateway.Is4() {
		e.Gateway4 = cmp.Or(e.Gateway4, a.Gateway.String())
	} else {
		e.Gateway6 = cmp.Or(e.Gateway6, a.Gateway.String())
	}
}

// SetStorage sets the storage of the image, and returns its volume. A storage that was
// chosen before is not chosen again.
func (s *Seed) SetStorage(site *Site, settings *Settings, b *Bounds, node, chosen string) (storage, volume string, err error) {
	if storage = chosen; storage != "" {
		err = site.CheckStorage(b, node, storage, "iso")
	} else {
		storage, err = settings.bootstrapStorage(site, b, node)
	}
	s.Mark.ISO = strings.ToLower(storage)
	return storage, storage + ":iso/" + ImageName(s.Mark.ID), err
}

// NICs returns the network interfaces of a VM with the addresses that the guest
// reports. Interfaces that only the guest has, such as the bridges of a container
// network, are ignored.
func NICs(id uuid.UUID, s *Settings, reported []pve.GuestInterface) []hypervisor.NIC {
	out := make([]hypervisor.NIC, 0, len(s.Interfaces))
	for i := range s.Interfaces {
		nic := hypervisor.NIC{Network: s.Interfaces[i].Network, MAC: strings.ToLower(MAC(id, &s.Interfaces[i], i))}
		for _, r := range reported {
			if !strings.EqualFold(r.MAC, nic.MAC) {
				continue
			}
			for _, text := range r.Addresses {
				if a, ok := kit.ParseNodeAddress(text.Address); ok && !slices.Contains(nic.Addresses, a) {
					nic.Addresses = append(nic.Addresses, a)
				}
			}
		}
		out = append(out, nic)
	}
	return out
}
