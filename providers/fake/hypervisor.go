package fake

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// Verb is a call of the driver contract.
type Verb string

// The calls of the driver contract.
const (
	Connect  Verb = "Connect"
	Observe  Verb = "Observe"
	Create   Verb = "Create"
	Start    Verb = "Start"
	Settle   Verb = "Settle"
	Shutdown Verb = "Shutdown"
	Delete   Verb = "Delete"
	Inspect  Verb = "Inspect"
	Size     Verb = "Size"
)

// Hypervisor holds VMs by the key of their machine. It is safe for concurrent
// use.
type Hypervisor struct {
	mu       sync.Mutex
	vms      map[hypervisor.Key]*vm
	made     map[hypervisor.Key]int
	launches map[hypervisor.Key]hypervisor.CreateOptions
	calls    map[Verb]int
	serial   int

	// faults fail calls; late ones fail the work that a call started, and
	// lost ones fail a call that did its work.
	faults map[Verb]*fault
	late   map[Verb]*fault
	lost   map[Verb]*fault
	// held keeps work that a verb started from ending.
	held map[Verb]bool
	// ignored are verbs that lead to nothing.
	ignored map[Verb]bool
	site    hypervisor.Endpoint
	size    hypervisor.Size
	// most is how many creations may be under way at once, all if zero, and
	// line who waits for that.
	most int
	line []hypervisor.Key
	// unsettled is what new VMs lack.
	unsettled string

	changes, siteChanges chan hypervisor.Key
}

// vm is one VM and the work in progress on it.
type vm struct {
	seen    hypervisor.VM
	foreign bool
	// addresses are what the guest reports once it runs.
	addresses []clusterv1.MachineAddress
	work      Verb
	// failed is the failure of the last work, until an Observe has told it.
	failed error
}

// fault fails a number of calls; a negative number fails them all.
type fault struct {
	err  error
	left int
}

// backlog is how many changes a reader may lag behind before they are dropped.
const backlog = 4096

// New returns a hypervisor without VMs.
func New() *Hypervisor {
	return &Hypervisor{
		vms:         map[hypervisor.Key]*vm{},
		made:        map[hypervisor.Key]int{},
		launches:    map[hypervisor.Key]hypervisor.CreateOptions{},
		calls:       map[Verb]int{},
		faults:      map[Verb]*fault{},
		late:        map[Verb]*fault{},
		lost:        map[Verb]*fault{},
		held:        map[Verb]bool{},
		ignored:     map[Verb]bool{},
		site:        hypervisor.Endpoint{ID: "fake-1", Version: "fake 1.0"},
		size:        hypervisor.Size{CPUs: 2, MemoryBytes: 4 << 30, DiskBytes: 20 << 30, Architecture: "amd64"},
		changes:     make(chan hypervisor.Key, backlog),
		siteChanges: make(chan hypervisor.Key, backlog),
	}
}

// enter counts a call and returns the fault that is due.
func (h *Hypervisor) enter(verb Verb) error {
	h.calls[verb]++
	return take(h.faults, verb)
}

func take(faults map[Verb]*fault, verb Verb) error {
	f := faults[verb]
	if f == nil || f.left == 0 {
		return nil
	}
	if f.left > 0 {
		f.left--
	}
	return f.err
}

// marked returns the VMs of a namespace that are complete and ours.
func (h *Hypervisor) marked(namespace string) []hypervisor.OwnedVM {
	var found []hypervisor.OwnedVM
	for key, v := range h.vms {
		if key.Namespace == namespace && !v.foreign && v.seen.State != hypervisor.Absent {
			found = append(found, hypervisor.OwnedVM{Machine: key.Name, ID: v.seen.ProviderID})
		}
	}
	slices.SortFunc(found, func(a, b hypervisor.OwnedVM) int { return cmp.Compare(a.Machine, b.Machine) })
	return found
}

// observe reports the VM, and once how the last work on it failed.
func (h *Hypervisor) observe(key hypervisor.Key) (hypervisor.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter(Observe); err != nil {
		return hypervisor.VM{}, err
	}
	v := h.vms[key]
	if v == nil || v.foreign {
		return hypervisor.VM{State: hypervisor.Absent}, nil
	}
	seen, failed := v.seen, v.failed
	v.failed = nil
	switch {
	case v.work != "":
		seen.State, seen.Message = hypervisor.Busy, fmt.Sprintf("%s is under way", v.work)
	case seen.State == hypervisor.Absent:
		delete(h.vms, key) // what a failed creation left
	}
	return seen, failed
}

func (h *Hypervisor) create(key hypervisor.Key, launch hypervisor.CreateOptions) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter(Create); err != nil {
		return err
	}
	if v := h.vms[key]; v != nil && v.foreign {
		return &hypervisor.Error{Reason: "NameConflict", Err: fmt.Errorf("a VM %q exists that is not ours", key.Name)}
	} else if v == nil || v.seen.State == hypervisor.Absent && v.work == "" {
		if err := h.admit(key, launch); err != nil {
			return err
		}
		h.serial++
		h.launches[key] = launch
		h.vms[key] = &vm{
			seen: hypervisor.VM{
				State: hypervisor.Absent, Zone: launch.Zone, UserData: true, OutOfSync: h.unsettled, ProviderID: fmt.Sprintf("fake://%08d", h.serial),
			},
			addresses: []clusterv1.MachineAddress{
				{Type: clusterv1.MachineInternalIP, Address: fmt.Sprintf("192.0.2.%d", h.serial%256)},
			},
			work: Create,
		}
		h.end(key)
	}
	return take(h.lost, Create)
}

// admit refuses what has no place, and makes it wait for its turn when as many
// creations are under way as may be.
func (h *Hypervisor) admit(key hypervisor.Key, launch hypervisor.CreateOptions) error {
	domains := h.site.FailureDomains
	isZone := func(d clusterv1.FailureDomain) bool { return d.Name == launch.Zone }
	if launch.Zone != "" && len(domains) > 0 && !slices.ContainsFunc(domains, isZone) {
		return &hypervisor.Error{Reason: "PlacementNotFound", Terminal: true, Err: fmt.Errorf("the cluster has no failure domain %q", launch.Zone)}
	}
	under := 0
	for _, v := range h.vms {
		if v.work == Create {
			under++
		}
	}
	if h.most > 0 && under >= h.most {
		if !slices.Contains(h.line, key) {
			h.line = append(h.line, key)
		}
		return &hypervisor.Error{Reason: "RequestQueued", Waiting: true, Err: fmt.Errorf("%d creations are under way, as many as may be", h.most)}
	}
	h.line = slices.DeleteFunc(h.line, func(k hypervisor.Key) bool { return k == key })
	return nil
}

// call tells all that wait to ask again: some of them may be gone.
func (h *Hypervisor) call() {
	for _, key := range h.line {
		h.push(key)
	}
}

func (h *Hypervisor) start(key hypervisor.Key) error { return h.change(key, Start) }

// settle takes one step: what is unsettled first, then the user data.
func (h *Hypervisor) settle(key hypervisor.Key, joined bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter(Settle); err != nil {
		return err
	}
	v := h.vms[key]
	if v == nil || v.foreign {
		return errors.New("no such VM")
	}
	switch {
	case v.seen.OutOfSync != "":
		v.seen.OutOfSync = ""
	case joined:
		v.seen.UserData = false
	}
	h.push(key)
	return take(h.lost, Settle)
}

func (h *Hypervisor) shutdown(key hypervisor.Key) error { return h.change(key, Shutdown) }

func (h *Hypervisor) remove(key hypervisor.Key) error { return h.change(key, Delete) }

// change starts work on a VM that is ours.
func (h *Hypervisor) change(key hypervisor.Key, verb Verb) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter(verb); err != nil {
		return err
	}
	v := h.vms[key]
	if v == nil || v.foreign {
		if verb == Delete {
			return nil
		}
		return errors.New("no such VM")
	}
	if v.work == "" && !h.ignored[verb] {
		v.work = verb
		h.end(key)
	}
	return take(h.lost, verb)
}

// end ends the work on a VM unless it is held.
func (h *Hypervisor) end(key hypervisor.Key) {
	v := h.vms[key]
	if v == nil || v.work == "" || h.held[v.work] {
		return
	}
	work := v.work
	v.work = ""
	if v.failed = take(h.late, work); v.failed == nil {
		h.finish(key, v, work)
	}
	h.push(key)
	h.call()
}

// finish puts the VM into the state that work leads to.
func (h *Hypervisor) finish(key hypervisor.Key, v *vm, work Verb) {
	if work == Create {
		h.made[key]++
		v.seen.State = hypervisor.Stopped
	}
	if work == Start {
		v.seen.State, v.seen.Addresses = hypervisor.Running, v.addresses
		v.seen.Host = cmp.Or(v.seen.Host, "host-1.example.test")
	}
	if work == Shutdown {
		v.seen.State, v.seen.Addresses = hypervisor.Stopped, nil
	}
	if work == Delete {
		delete(h.vms, key)
	}
}

// push tells of a change, as long as somebody listens.
func (h *Hypervisor) push(key hypervisor.Key) {
	select {
	case h.changes <- key:
	default:
	}
}
