package cluster

import (
	"context"
	"net/netip"
)

// Guests are the machines of the VMs. Calls for one VM never overlap. A call
// returns when the machine has been started or has ended, not when it has
// booted. No call is made with the cluster's lock held.
type Guests interface {
	// PowerOn starts the machine.
	PowerOn(ctx context.Context, vm VM) error
	// PowerOff stops the machine. If soft is set, it requests a shutdown of the
	// operating system and returns when that is complete.
	PowerOff(ctx context.Context, vm VM, soft bool) error
	// Destroy deletes the machine's disk. It is off.
	Destroy(ctx context.Context, vm VM) error
}

// FileReader is a Guests whose agent reads files.
type FileReader interface {
	ReadFile(ctx context.Context, vm VM, path string) ([]byte, error)
}

// Reports is how machines report their state.
type Reports interface {
	SetGuest(id string, guest Guest) error
	GuestStopped(id string) error
}

// VM is a VM as its machine needs to know it.
type VM struct {
	// ID is unique, also if a VMID is used again.
	ID        string   `json:"id"`
	VMID      int      `json:"vmid"`
	Name      string   `json:"name"`
	Node      string   `json:"node"`
	UUID      string   `json:"uuid"`
	Running   bool     `json:"running"`
	Template  bool     `json:"template"`
	Lock      string   `json:"lock,omitempty"`
	MACs      []string `json:"macs"`
	CPUs      int64    `json:"cpus"`
	MemoryMiB int64    `json:"memoryMiB"`
	// Options is the configuration.
	Options map[string]string `json:"options"`
	// BootDiskGiB is the size of the disk that it boots from.
	BootDiskGiB int64 `json:"bootDiskGiB"`
	// DataDisksGiB are the sizes of the disks that it does not boot from.
	DataDisksGiB []int64 `json:"dataDisksGiB,omitempty"`
	// CDs are the ISO images in its drives.
	CDs        [][]byte `json:"-"`
	Kubernetes string   `json:"kubernetes,omitempty"`
	Renderer   string   `json:"renderer,omitempty"`
	Ignition   bool     `json:"ignition,omitempty"`
}

// Guest is the state that a guest agent reports.
type Guest struct {
	HostName string     `json:"hostName,omitempty"`
	NICs     []GuestNIC `json:"nics,omitempty"`
	// System are the fields of os-release by their name in lower case.
	System map[string]string `json:"system,omitempty"`
	// Files are contents by path, for agents without a machine.
	Files map[string]string `json:"files,omitempty"`
	// Answers are results of commands of the agent that replace the state above, such as
	// that of a command which the agent does not allow.
	Answers map[string]any `json:"answers,omitempty"`
}

// answer returns the result of a command of the agent.
func (g *Guest) answer(command string, state any) any {
	if other, ok := g.Answers[command]; ok {
		return other
	}
	return state
}

// GuestNIC is a network interface as a guest agent reports it.
type GuestNIC struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac"`
	Addresses []netip.Prefix `json:"addresses"`
}
