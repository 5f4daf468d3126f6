package pve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Resource is an entry of the list of all guests, nodes and storages.
type Resource struct {
	Type   string `json:"type"`
	Node   string `json:"node"`
	Status string `json:"status"`
	// VMID, Name, Lock, Tags, Pool and Template are of guests. MaxCPU, MaxMem and
	// MaxDisk are of guests and nodes.
	VMID     int    `json:"vmid"`
	Name     string `json:"name"`
	Lock     string `json:"lock"`
	Tags     string `json:"tags"`
	Pool     string `json:"pool"`
	Template int    `json:"template"`
	// HAState is the state of a guest in the HA manager. It is empty if the HA manager
	// does not manage the guest.
	HAState string  `json:"hastate"`
	MaxCPU  float64 `json:"maxcpu"`
	MaxMem  int64   `json:"maxmem"`
	MaxDisk int64   `json:"maxdisk"`
	Mem     int64   `json:"mem"`
	// Uptime is the number of seconds since a guest was started.
	Uptime int64 `json:"uptime"`
	// Arch is the architecture of a node.
	Arch string `json:"host-arch"`
	// Storage, Shared and Content are of storages.
	Storage string `json:"storage"`
	Shared  int    `json:"shared"`
	Content string `json:"content"`
}

// maxResources limits the entries of the list, which a server of a tenant may send.
const maxResources = 200_000

// Resources is the list of all guests, nodes and storages.
type Resources []*Resource

// UnmarshalJSON reads a list with a limited number of entries, without those that are
// null.
func (r *Resources) UnmarshalJSON(data []byte) error {
	in := json.NewDecoder(bytes.NewReader(data))
	if t, err := in.Token(); err != nil || t != json.Delim('[') {
		return errors.New("the list of guests is not a list")
	}
	for in.More() {
		var one *Resource
		if err := in.Decode(&one); err != nil {
			return fmt.Errorf("reading list of guests: %w", err)
		}
		if one == nil {
			continue
		}
		if *r = append(*r, one); len(*r) > maxResources {
			return fmt.Errorf("the list of guests has more than %d entries", maxResources)
		}
	}
	return nil
}

// TagList returns the tags of a guest.
func (r *Resource) TagList() []string {
	return strings.FieldsFunc(r.Tags, func(c rune) bool { return c == ';' || c == ',' || c == ' ' })
}

// Has reports whether a storage has a type of content.
func (r *Resource) Has(content string) bool {
	return slices.Contains(strings.Split(r.Content, ","), content)
}

// Same reports whether two entries differ only in measurements.
func (r *Resource) Same(other *Resource) bool {
	a, b := *r, *other
	a.Mem, b.Mem, a.Uptime, b.Uptime = 0, 0, 0, 0
	return a == b
}

// AgentRequest returns the request of a command to the guest agent of a VM.
func (r *Resource) AgentRequest(command string, into any) Request {
	return Request{Method: http.MethodGet, Path: []string{"nodes", r.Node, "qemu", strconv.Itoa(r.VMID), "agent", command}, Guest: true, Into: into}
}

// Task is a task that was started with a request.
type Task struct {
	UPID string `json:"upid"`
	// Status is empty while the task runs, and OK if it succeeded. In a request for one
	// task it is running or stopped, and ExitStatus is the result.
	Status     string `json:"status"`
	ExitStatus string `json:"exitstatus"`
}

// IsWarning reports whether a result is that of a task that succeeded with warnings.
func IsWarning(result string) bool { return len(result) > 8 && result[:8] == "WARNINGS" }

// GuestInterfaces is the response of the guest agent about its interfaces.
type GuestInterfaces struct {
	Result []GuestInterface `json:"result"`
}

// GuestInterface is an interface that the guest agent reports.
type GuestInterface struct {
	Name      string `json:"name"`
	MAC       string `json:"hardware-address"`
	Addresses []struct {
		Address string `json:"ip-address"`
	} `json:"ip-addresses"`
}

// A guest may report any number of interfaces: more of them are ignored.
const (
	maxInterfaces = 64
	maxAddresses  = 32
	maxText       = 64
)

// Limit removes parts that no guest needs, so that a response uses little memory while it is
// kept.
func (g *GuestInterfaces) Limit() {
	kept := make([]GuestInterface, 0, min(len(g.Result), maxInterfaces))
	for _, i := range g.Result[:min(len(g.Result), maxInterfaces)] {
		i.Name, i.MAC = cut(i.Name), cut(i.MAC)
		i.Addresses = slices.Clone(i.Addresses[:min(len(i.Addresses), maxAddresses)])
		for n := range i.Addresses {
			i.Addresses[n].Address = cut(i.Addresses[n].Address)
		}
		kept = append(kept, i)
	}
	g.Result = kept
}

// HasAddress reports whether a guest reports an address other than that of its loopback.
func (g *GuestInterfaces) HasAddress() bool {
	return slices.ContainsFunc(g.Result, func(i GuestInterface) bool { return i.Name != "lo" && len(i.Addresses) > 0 })
}

func cut(text string) string { return strings.Clone(text[:min(len(text), maxText)]) }

// GuestOS is the response of the guest agent about its operating system.
type GuestOS struct {
	Result struct {
		Variant string `json:"variant"`
	} `json:"result"`
}
