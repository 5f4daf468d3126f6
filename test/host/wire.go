package host

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Address is an address on a network card of a host.
type Address struct {
	// Interface is the name in the host, MAC the hardware address in lower case.
	Interface, MAC string
	// Prefix is the address with the length of its subnet.
	Prefix netip.Prefix
}

// Addresses returns the addresses on the network cards now. Addresses that
// only work on the link are left out.
func (h *Host) Addresses() []Address {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.addresses)
}

// Changes delivers the addresses whenever they change, the newest only, and is
// closed when the host is off.
func (h *Host) Changes() <-chan []Address {
	return h.changes
}

// connect puts the network cards into the network namespace of pid, joined to
// the bridge.
func (h *Host) connect(pid int) error {
	bed, err := netns.GetFromPath(filepath.Join(netnsDir, h.netns))
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", h.netns, err)
	}
	defer func() { _ = bed.Close() }()
	own, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	handle, err := netlink.NewHandleAt(bed)
	if err != nil {
		return err
	}
	defer handle.Close()
	bridge, err := handle.LinkByName(h.bridge)
	if err != nil {
		return fmt.Errorf("finding bridge %s: %w", h.bridge, err)
	}
	for i, text := range h.spec.MACs {
		mac, err := net.ParseMAC(text)
		if err != nil {
			return err
		}
		name := h.wireName(i)
		// The kernel takes the wires of a host down a moment after it.
		if old, err := handle.LinkByName(name); err == nil {
			_ = handle.LinkDel(old)
		}
		wire := &netlink.Veth{
			LinkAttrs:        netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
			PeerName:         h.spec.cardName(i),
			PeerHardwareAddr: mac,
			PeerNamespace:    netlink.NsFd(own),
		}
		if err := handle.LinkAdd(wire); err != nil {
			return fmt.Errorf("adding %s: %w", name, err)
		}
		if err := handle.LinkSetUp(wire); err != nil {
			return fmt.Errorf("enabling %s: %w", name, err)
		}
	}
	return nil
}

// cardName is the name of a network card before cloud-init renames it.
func (s *Spec) cardName(i int) string {
	if s.Renderer == "" {
		return fmt.Sprintf("eth%d", i)
	}
	// As the slots of VMware's VMs are numbered.
	return fmt.Sprintf("ens%d", 192+32*i)
}

// wireName is the name of the bed's end of a network card.
func (h *Host) wireName(i int) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(h.spec.Disk))
	return fmt.Sprintf("h%08x-%d", sum.Sum32(), i)
}

// watch follows the addresses of the host until the returned function is
// called.
func (h *Host) watch(pid int) (stop func(), err error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, err
	}
	updates, done, stopped := make(chan netlink.AddrUpdate), make(chan struct{}), make(chan struct{})
	options := netlink.AddrSubscribeOptions{Namespace: &ns}
	if err := netlink.AddrSubscribeWithOptions(updates, done, options); err != nil {
		handle.Close()
		return nil, err
	}
	h.refresh(handle)
	go func() {
		defer close(stopped)
		for range updates {
			h.refresh(handle)
		}
	}()
	return func() {
		close(done)
		<-stopped
		handle.Close()
	}, nil
}

// refresh reads the addresses of the host and reports a change.
func (h *Host) refresh(handle *netlink.Handle) {
	links, err := handle.LinkList()
	if err != nil {
		return // the next change tries again
	}
	var now []Address
	for _, link := range links {
		attrs := link.Attrs()
		if !slices.ContainsFunc(h.spec.MACs, func(mac string) bool { return strings.EqualFold(mac, attrs.HardwareAddr.String()) }) {
			continue
		}
		addresses, err := handle.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return
		}
		for _, address := range addresses {
			ip, ok := netip.AddrFromSlice(address.IP)
			if !ok || ip.Unmap().IsLinkLocalUnicast() {
				continue
			}
			bits, _ := address.Mask.Size()
			now = append(now, Address{
				Interface: attrs.Name,
				MAC:       attrs.HardwareAddr.String(),
				Prefix:    netip.PrefixFrom(ip.Unmap(), bits),
			})
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publish(now)
}

// publish stores the addresses and reports them if they differ from the
// previous ones. The caller holds the lock.
func (h *Host) publish(now []Address) {
	if slices.Equal(now, h.addresses) {
		return
	}
	h.addresses = now
	select {
	case <-h.changes:
	default:
	}
	h.changes <- slices.Clone(now)
}
