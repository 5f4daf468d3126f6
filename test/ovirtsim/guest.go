package ovirtsim

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// Guests are the machines of the VMs. Calls for one VM never overlap. A call
// returns when the machine has been started or has ended, not when it has
// booted. No call is made with the server's lock held.
type Guests interface {
	// PowerOn starts the machine. An error takes the VM down.
	PowerOn(ctx context.Context, vm VM) error
	// PowerOff stops the machine. If soft is set, it requests a shutdown of the
	// operating system and returns when that is complete. A machine that is off
	// is not an error.
	PowerOff(ctx context.Context, vm VM, soft bool) error
	// Destroy takes the machine's disk away. It is off.
	Destroy(ctx context.Context, vm VM) error
}

// Reports is how machines talk back. A Guests that has a method
// Attach(Reports) is given it before the server takes its first request.
type Reports interface {
	SetGuestAddresses(id string, nics []GuestNIC) error
	SetGuestHostName(id, name string) error
	SetGuestSystem(id string, system GuestSystem) error
	GuestStopped(id string) error
}

// VM is a VM as its machine needs to know it.
type VM struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Template  string `json:"template"`
	Host      string `json:"host"`
	Status    string `json:"status"`
	NICs      []NIC  `json:"nics"`
	CPUs      int64  `json:"cpus"`
	MemoryMiB int64  `json:"memoryMiB"`
	// BootDiskGiB is the size of the disk that it boots from.
	BootDiskGiB int64 `json:"bootDiskGiB"`
	// DataDisksGiB are the sizes of the disks that it does not boot from.
	DataDisksGiB []int64 `json:"dataDisksGiB,omitempty"`
	// Kubernetes is the version on its disk, if the template sets it.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Renderer is the network renderer of cloud-init on its disk, if the template
	// sets it.
	Renderer string `json:"renderer,omitempty"`
	// OS is its operating system, such as rhcos_x64.
	OS string `json:"os"`
	// Drive are the files of the configuration drive by their path, such as
	// openstack/latest/user_data. There is none, if empty.
	Drive map[string][]byte `json:"drive,omitempty"`
	// Payload are the files of a payload on a disk of its own, by name, and
	// PayloadLabel is that disk's volume label.
	Payload      map[string][]byte `json:"payload,omitempty"`
	PayloadLabel string            `json:"payloadLabel,omitempty"`
	// Addresses are the addresses that the guest agent reports.
	Addresses []string `json:"addresses,omitempty"`
}

// NIC is a network card.
type NIC struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Network string `json:"network"`
	Profile string `json:"profile"`
}

// GuestNIC is a network card as the guest's agent reports it.
type GuestNIC struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac"`
	Addresses []netip.Prefix `json:"addresses"`
}

// GuestSystem is the operating system that the guest agent reports: the fields
// of the guest's os-release, and its kernel.
type GuestSystem struct {
	// Name, Version and Variant are NAME, VERSION_ID and VARIANT.
	Name    string `json:"name"`
	Version string `json:"version"`
	Variant string `json:"variant"`
	Kernel  string `json:"kernel"`
}

// maxSystemText is the size of the field in the engine's database. If the text
// is longer, no data of the VM is stored.
const maxSystemText = 255

// elem returns the element of the API: nil, unless the version is known. The
// variant is called codename there.
func (g GuestSystem) elem() *elem {
	if g.Version == "" {
		return nil
	}
	e := el("guest_operating_system")
	e.add(leaf("architecture", "x86_64"), filled("codename", g.Variant), filled("distribution", g.Name), leaf("family", "Linux"))
	if g.Kernel != "" {
		e.add(el("kernel").add(el("version").add(leaf("full_version", g.Kernel))))
	}
	return e.add(el("version").add(leaf("full_version", g.Version)))
}

// DMI contains the fields that a VM's BIOS reports to its operating system.
func DMI(vm VM) map[string]string {
	return map[string]string{
		"sys_vendor":     "oVirt",
		"product_name":   "RHEL",
		"product_uuid":   vm.ID,
		"product_serial": vm.ID,
	}
}

// call calls Guests after all earlier calls for the VM, and then done under the
// lock. Without Guests nothing is done.
func (s *Server) call(v *vm, f func(VM) error, done func(error)) {
	if s.guests == nil {
		return
	}
	described := s.describe(v)
	before, ended := v.calls, make(chan struct{})
	v.calls = ended
	s.wg.Go(func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		err := errStopped
		if s.ctx.Err() == nil {
			err = f(described)
		}
		if done != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			done(err)
			s.changed()
		}
	})
}

func (s *Server) describe(v *vm) VM {
	c := v.current()
	out := VM{
		ID: v.id, Name: v.name, Template: v.original, Host: first(s.hostNames(v)), Status: v.status,
		CPUs: c.cores * c.sockets * c.threads, MemoryMiB: c.memory / mib, Drive: v.drive, Kubernetes: v.kubernetes, Renderer: v.renderer, OS: c.os,
	}
	for _, n := range v.nics {
		card := NIC{Name: n.name, MAC: n.mac}
		if p, ok := s.profiles.get(n.profile); ok {
			card.Profile = p.name
			if net, ok := s.networks.get(p.network); ok {
				card.Network = net.name
			}
		}
		out.NICs = append(out.NICs, card)
	}
	for _, a := range v.attachments {
		switch d, ok := s.disks.get(a.disk); {
		case ok && a.bootable:
			out.BootDiskGiB = d.provisioned >> 30
		case ok:
			out.DataDisksGiB = append(out.DataDisksGiB, d.provisioned>>30)
		}
	}
	out.Addresses = v.addresses()
	for _, payload := range c.payloads.all("payload") {
		out.PayloadLabel = payload.str("volume_id")
		for _, file := range payload.all("files/file") {
			if out.Payload == nil {
				out.Payload = map[string][]byte{}
			}
			out.Payload[file.str("name")] = []byte(file.str("content"))
		}
	}
	return out
}

// VMs lists the VMs.
func (s *Server) VMs() []VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]VM, 0, len(s.vms.items))
	for _, v := range s.vms.items {
		out = append(out, s.describe(v))
	}
	return out
}

// FindVM finds the VM of that name or ID. There has to be one only.
func (s *Server) FindVM(name string) (VM, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.vms.where(func(v *vm) bool { return v.name == name || strings.EqualFold(v.id, name) })
	if len(found) != 1 {
		return VM{}, fmt.Errorf("finding VM %s: there are %d", name, len(found))
	}
	return s.describe(found[0]), nil
}

func (s *Server) changeVM(id string, change func(v *vm)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.vms.get(id)
	if !ok {
		v, _ = named(&s.vms, id)
	}
	if v == nil {
		return fmt.Errorf("no VM %q", id)
	}
	change(v)
	s.changed()
	return nil
}

// SetGuestAddresses reports the addresses of a running guest, which shows that
// it is up. The VM is named by ID or name. Cards that the VM does not have,
// such as a container bridge, are reported too, as the agent does.
func (s *Server) SetGuestAddresses(id string, nics []GuestNIC) error {
	return s.changeVM(id, func(v *vm) {
		if !running(v.status) {
			return
		}
		s.report(v, nics)
		if v.status == vmPoweringUp || v.status == vmWaitForLaunch {
			s.isUp(v)
		}
	})
}

// report shows the guest's network interfaces after TimeGuestReport. The caller
// holds the lock.
func (s *Server) report(v *vm, nics []GuestNIC) {
	if s.opts.Timings[TimeGuestReport] <= 0 {
		v.agent = nics
		return
	}
	run := v.run
	s.when(TimeGuestReport, func() {
		if v.run == run && running(v.status) {
			v.agent = nics
		}
	})
}

// SetGuestHostName reports a running guest's own name.
func (s *Server) SetGuestHostName(id, name string) error {
	return s.changeVM(id, func(v *vm) { v.fqdn = name })
}

// SetGuestSystem reports a running guest's operating system.
func (s *Server) SetGuestSystem(id string, system GuestSystem) error {
	for _, text := range []string{system.Name, system.Version, system.Variant, system.Kernel} {
		if len(text) > maxSystemText {
			return fmt.Errorf("the guest of VM %s reports a text of %d characters, and the engine has room for %d", id, len(text), maxSystemText)
		}
	}
	return s.changeVM(id, func(v *vm) {
		if running(v.status) {
			v.system = system
		}
	})
}

// GuestStopped reports that a guest shut itself down.
func (s *Server) GuestStopped(id string) error {
	return s.changeVM(id, func(v *vm) {
		if running(v.status) {
			s.stopped(v)
			s.event(61, "normal", "VM "+v.name+" is down. Exit message: User shut down from within the guest.", nil, v)
		}
	})
}

// GuestDied reports that the process of a guest has ended. A highly available
// VM is restarted.
func (s *Server) GuestDied(id string) error {
	return s.changeVM(id, func(v *vm) {
		if running(v.status) {
			s.lost(v)
			if v.ha {
				s.failOver(v)
			}
		}
	})
}
