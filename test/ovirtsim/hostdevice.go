package ovirtsim

import (
	"encoding/hex"
	"fmt"
	"slices"
)

// DeviceSpec is a PCI device of a host that can be passed through to a VM.
type DeviceSpec struct {
	// Name is the name of the device as libvirt has it, such as pci_0000_04_00_0.
	Name     string `json:"name"`
	VendorID int32  `json:"vendorID"`
	DeviceID int32  `json:"deviceID"`
	// IOMMUGroup is the group of the device: all devices of a group are passed
	// through together.
	IOMMUGroup int64 `json:"iommuGroup"`
}

// passedDevice is a device of a host that was added to a VM. A placeholder was added
// because another device of its IOMMU group was.
type passedDevice struct {
	name        string
	placeholder bool
}

func (s *Server) hostDeviceRoutes() map[string]handler {
	return map[string]handler{
		"GET hosts/{}/devices": s.onHost(func(_ *request, h *host) (*elem, error) {
			out := el("host_devices")
			for i := range h.devices {
				out.add(s.hostDeviceElem(h, &h.devices[i]))
			}
			return out, nil
		}),
		"GET vms/{}/hostdevices": s.onVM(func(_ *request, v *vm) (*elem, error) {
			out := el("host_devices")
			for _, p := range v.passed {
				out.add(s.passedElem(v, p))
			}
			return out, nil
		}),
		"POST vms/{}/hostdevices":      s.onVM(s.addHostDevice),
		"DELETE vms/{}/hostdevices/{}": s.onVM(s.removeHostDevice),
	}
}

func (h *host) device(name string) *DeviceSpec {
	for i := range h.devices {
		if h.devices[i].Name == name {
			return &h.devices[i]
		}
	}
	return nil
}

// hostDeviceElem shows a device of a host, with the VM that runs with it.
func (s *Server) hostDeviceElem(h *host, d *DeviceSpec) *elem {
	// The engine's ID of a device is its name in hexadecimal digits, so that devices
	// of several hosts have one ID.
	id := hex.EncodeToString([]byte(d.Name))
	e := el("host_device").at(apiPath+"/hosts/"+h.id+"/devices/"+id, id)
	e.add(leaf("name", d.Name), leaf("capability", "pci"), leaf("driver", "vfio-pci"), leaf("iommu_group", d.IOMMUGroup),
		hardwareID("product", d.DeviceID), hardwareID("vendor", d.VendorID), ref("host", "hosts", h.id))
	return e.add(ref("vm", "vms", s.userOf(h, d.Name)))
}

func hardwareID(name string, id int32) *elem {
	e := el(name, leaf("name", fmt.Sprintf("%s %d", name, id)))
	e.set("id", fmt.Sprintf("0x%04x", id))
	return e
}

func (s *Server) passedElem(v *vm, p passedDevice) *elem {
	for _, h := range s.hosts.items {
		if d := h.device(p.name); d != nil && slices.Contains(v.hosts, h.id) {
			e := s.hostDeviceElem(h, d)
			e.kids = slices.DeleteFunc(e.kids, func(kid *elem) bool { return kid.name == "vm" })
			return e.add(leaf("placeholder", p.placeholder), ref("vm", "vms", v.id))
		}
	}
	return nil
}

// userOf returns the ID of the VM that runs on a host with a device. A VM that is
// down uses none.
func (s *Server) userOf(h *host, device string) string {
	for _, v := range s.vms.items {
		if v.host == h.id && running(v.status) && v.hasPassed(device) {
			return v.id
		}
	}
	return ""
}

func (v *vm) hasPassed(device string) bool {
	return slices.ContainsFunc(v.passed, func(p passedDevice) bool { return p.name == device })
}

// addHostDevice passes a device through to a VM, together with the other devices of
// its IOMMU group. Only the start of the VM fails if another VM runs with it.
func (s *Server) addHostDevice(q *request, v *vm) (*elem, error) {
	name := q.body.str("name")
	if id := q.body.id(); id != "" {
		decoded, err := hex.DecodeString(id)
		if err != nil {
			return nil, badValue("id", id)
		}
		name = string(decoded)
	}
	if err := v.takesHostDevices("add"); err != nil {
		return nil, err
	}
	h, _ := s.hosts.get(v.hosts[0])
	d := h.device(name)
	if d == nil {
		return nil, conflict("Cannot add Host devices. The specified host device was not found on the host that the VM is pinned to.")
	}
	for _, other := range h.devices {
		i := slices.IndexFunc(v.passed, func(p passedDevice) bool { return p.name == other.Name })
		switch {
		case other.IOMMUGroup != d.IOMMUGroup:
		case i < 0:
			v.passed = append(v.passed, passedDevice{name: other.Name, placeholder: other.Name != name})
		case other.Name == name:
			v.passed[i].placeholder = false
		}
	}
	return s.passedElem(v, passedDevice{name: name}), nil
}

func (s *Server) removeHostDevice(q *request, v *vm) (*elem, error) {
	if err := v.takesHostDevices("remove"); err != nil {
		return nil, err
	}
	name, err := hex.DecodeString(q.args[1])
	if err != nil || !v.hasPassed(string(name)) {
		return nil, notFound()
	}
	h, _ := s.hosts.get(v.hosts[0])
	group := h.device(string(name)).IOMMUGroup
	v.passed = slices.DeleteFunc(v.passed, func(p passedDevice) bool { return h.device(p.name).IOMMUGroup == group })
	return s.acted(q, "Removing Host devices"), nil
}

// takesHostDevices refuses to change the host devices of a VM that is not down, or
// not pinned to one host.
func (v *vm) takesHostDevices(action string) error {
	switch {
	case v.status != vmDown:
		return conflict("Cannot %s Host devices. VM is not down.", action)
	case len(v.hosts) == 0:
		return conflict("Cannot %s Host devices. VM is not pinned to any host.", action)
	case len(v.hosts) > 1:
		return conflict("Cannot %s Host devices. VM is pinned to multiple hosts.", action)
	}
	return nil
}

// lacksDevice returns the reason why a VM cannot run with its host devices on a
// host.
func (s *Server) lacksDevice(v *vm, h *host) string {
	for _, p := range v.passed {
		if len(v.hosts) != 1 || v.hosts[0] != h.id {
			return "it does not provide requested host devices"
		}
		if user := s.userOf(h, p.name); user != "" && user != v.id {
			return "some of the required host devices are unavailable"
		}
	}
	return ""
}
