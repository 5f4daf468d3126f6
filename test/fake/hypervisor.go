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

// Verb is a method of the driver contract.
type Verb string

// The methods of the driver contract.
const (
	Connect  Verb = "Connect"
	Observe  Verb = "Observe"
	Create   Verb = "Create"
	Start    Verb = "Start"
	Sync     Verb = "Sync" // each Syncer
	Shutdown Verb = "Shutdown"
	Delete   Verb = "Delete"
	Inspect  Verb = "Inspect"
	Size     Verb = "Size"
)

// Names of the Syncers.
const (
	userData = hypervisor.UserData
	settings = "Settings"
)

// Hypervisor stores VMs by the key of their machine. It is safe for concurrent
// use.
type Hypervisor struct {
	mu      sync.Mutex
	vms     map[hypervisor.Key]*vm
	created map[hypervisor.Key]int
	options map[hypervisor.Key]hypervisor.CreateOptions
	calls   map[Verb]int
	lastID  int

	// faults make calls fail, workFaults make the actions fail that calls start,
	// and replyFaults make calls fail that started their action.
	faults      map[Verb]*fault
	workFaults  map[Verb]*fault
	replyFaults map[Verb]*fault
	// held are the verbs whose actions do not complete.
	held map[Verb]bool
	// ignored are the verbs that have no effect.
	ignored  map[Verb]bool
	endpoint hypervisor.Endpoint
	size     hypervisor.Size
	// maxCreations is the limit of concurrent creations; zero means no limit.
	// queue holds the machines that wait for a free slot.
	maxCreations int
	queue        []hypervisor.Key
	// newOutOfSync is the difference that new VMs report.
	newOutOfSync string

	changes, endpointChanges chan hypervisor.Key
}

// vm is one VM and the action in progress on it.
type vm struct {
	observed hypervisor.VM
	foreign  bool
	// addresses are the addresses that the guest reports while it runs.
	addresses []clusterv1.MachineAddress
	work      Verb
	// failed is the failure of the last action, until the next one begins.
	failed error
}

// isRemainder reports whether only the failure of a creation is left of the VM.
func (v *vm) isRemainder() bool { return v.observed.State == hypervisor.Absent && v.work == "" }

// fault makes a number of calls fail; a negative number makes all calls fail.
type fault struct {
	err  error
	left int
}

// backlog is the number of undelivered changes above which changes are dropped.
const backlog = 4096

// New returns a hypervisor without VMs.
func New() *Hypervisor {
	return &Hypervisor{
		vms:             map[hypervisor.Key]*vm{},
		created:         map[hypervisor.Key]int{},
		options:         map[hypervisor.Key]hypervisor.CreateOptions{},
		calls:           map[Verb]int{},
		faults:          map[Verb]*fault{},
		workFaults:      map[Verb]*fault{},
		replyFaults:     map[Verb]*fault{},
		held:            map[Verb]bool{},
		ignored:         map[Verb]bool{},
		endpoint:        hypervisor.Endpoint{ID: "fake-1", Version: "fake 1.0"},
		size:            hypervisor.Size{CPUs: 2, MemoryBytes: 4 << 30, DiskBytes: 20 << 30, Architecture: "amd64"},
		changes:         make(chan hypervisor.Key, backlog),
		endpointChanges: make(chan hypervisor.Key, backlog),
	}
}

// call counts a call and returns the fault that applies to it.
func (h *Hypervisor) call(verb Verb) error {
	h.calls[verb]++
	return takeFault(h.faults, verb)
}

func takeFault(faults map[Verb]*fault, verb Verb) error {
	f := faults[verb]
	if f == nil || f.left == 0 {
		return nil
	}
	if f.left > 0 {
		f.left--
	}
	return f.err
}

// owned returns the VMs of a namespace that are complete and have the owner
// mark.
func (h *Hypervisor) owned(namespace string) []hypervisor.OwnedVM {
	var found []hypervisor.OwnedVM
	for key, v := range h.vms {
		if key.Namespace == namespace && !v.foreign && v.observed.State != hypervisor.Absent {
			found = append(found, hypervisor.OwnedVM{Machine: key.Name, ID: v.observed.ProviderID})
		}
	}
	slices.SortFunc(found, func(a, b hypervisor.OwnedVM) int { return cmp.Compare(a.Machine, b.Machine) })
	return found
}

// observe reports the VM.
func (h *Hypervisor) observe(key hypervisor.Key) (hypervisor.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call(Observe); err != nil {
		return hypervisor.VM{}, err
	}
	v := h.vms[key]
	if v == nil || v.foreign {
		return hypervisor.VM{State: hypervisor.Absent}, nil
	}
	observed := v.observed
	switch {
	case v.work != "":
		observed.State, observed.Message = hypervisor.Busy, fmt.Sprintf("%s is in progress", v.work)
	case v.isRemainder():
		observed = hypervisor.VM{State: hypervisor.Absent, LastFailure: v.failed}
	default:
		observed.LastFailure = v.failed
	}
	if observed.UserData {
		observed.ToSync = append(observed.ToSync, userData)
	}
	if observed.OutOfSync != "" {
		observed.ToSync = append(observed.ToSync, settings)
	}
	return observed, nil
}

func (h *Hypervisor) create(key hypervisor.Key, options hypervisor.CreateOptions) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call(Create); err != nil {
		return err
	}
	if v := h.vms[key]; v != nil && v.foreign {
		return &hypervisor.Error{Reason: "NameConflict", Err: fmt.Errorf("a VM %q exists and has no owner mark", key.Name)}
	} else if v == nil || v.isRemainder() {
		if err := h.admit(key, options); err != nil {
			return err
		}
		h.lastID++
		h.options[key] = options
		h.vms[key] = &vm{
			observed: hypervisor.VM{
				State: hypervisor.Absent, Zone: options.Zone, UserData: true, OutOfSync: h.newOutOfSync, ProviderID: fmt.Sprintf("fake://%08d", h.lastID),
				ID: fmt.Sprintf("vm-%d", h.lastID),
			},
			addresses: []clusterv1.MachineAddress{
				{Type: clusterv1.MachineInternalIP, Address: fmt.Sprintf("192.0.2.%d", h.lastID%256)},
			},
			work: Create,
		}
		h.complete(key)
	}
	return takeFault(h.replyFaults, Create)
}

// admit rejects a failure domain that does not exist. It queues the machine if
// the number of concurrent creations has reached the limit.
func (h *Hypervisor) admit(key hypervisor.Key, options hypervisor.CreateOptions) error {
	domains := h.endpoint.FailureDomains
	isZone := func(d clusterv1.FailureDomain) bool { return d.Name == options.Zone }
	if options.Zone != "" && len(domains) > 0 && !slices.ContainsFunc(domains, isZone) {
		return &hypervisor.Error{Reason: "PlacementNotFound", Terminal: true, Err: fmt.Errorf("the cluster has no failure domain %q", options.Zone)}
	}
	creating := 0
	for _, v := range h.vms {
		if v.work == Create {
			creating++
		}
	}
	if h.maxCreations > 0 && creating >= h.maxCreations {
		if !slices.Contains(h.queue, key) {
			h.queue = append(h.queue, key)
		}
		return &hypervisor.Error{Reason: "RequestQueued", Waiting: true, Err: fmt.Errorf("%d creations are in progress, which is the limit", h.maxCreations)}
	}
	h.queue = slices.DeleteFunc(h.queue, func(k hypervisor.Key) bool { return k == key })
	return nil
}

// notifyQueued notifies all queued machines, because some of them may have been
// deleted.
func (h *Hypervisor) notifyQueued() {
	for _, key := range h.queue {
		h.notify(key)
	}
}

func (h *Hypervisor) start(key hypervisor.Key) error { return h.change(key, Start) }

// sync changes a part of a VM.
func (h *Hypervisor) sync(key hypervisor.Key, change func(*hypervisor.VM)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call(Sync); err != nil {
		return err
	}
	v := h.vms[key]
	if v == nil || v.foreign {
		return errors.New("no such VM")
	}
	change(&v.observed)
	h.notify(key)
	return takeFault(h.replyFaults, Sync)
}

func (h *Hypervisor) shutdown(key hypervisor.Key) error { return h.change(key, Shutdown) }

func (h *Hypervisor) remove(key hypervisor.Key) error { return h.change(key, Delete) }

// change starts an action on a VM that has the owner mark.
func (h *Hypervisor) change(key hypervisor.Key, verb Verb) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.call(verb); err != nil {
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
		v.work, v.failed = verb, nil
		h.complete(key)
	}
	return takeFault(h.replyFaults, verb)
}

// complete completes the action on a VM unless the action is held.
func (h *Hypervisor) complete(key hypervisor.Key) {
	v := h.vms[key]
	if v == nil || v.work == "" || h.held[v.work] {
		return
	}
	work := v.work
	v.work = ""
	if v.failed = takeFault(h.workFaults, work); v.failed == nil {
		h.apply(key, v, work)
	}
	h.notify(key)
	h.notifyQueued()
}

// apply sets the state of the VM that results from the action.
func (h *Hypervisor) apply(key hypervisor.Key, v *vm, work Verb) {
	if work == Create {
		h.created[key]++
		v.observed.State = hypervisor.Stopped
	}
	if work == Start {
		v.observed.State, v.observed.Addresses = hypervisor.Running, v.addresses
		v.observed.Host = cmp.Or(v.observed.Host, "host-1.example.test")
	}
	if work == Shutdown {
		v.observed.State, v.observed.Addresses = hypervisor.Stopped, nil
	}
	if work == Delete {
		delete(h.vms, key)
	}
}

// notify delivers the key of a machine; it drops the key if the channel is
// full.
func (h *Hypervisor) notify(key hypervisor.Key) {
	select {
	case h.changes <- key:
	default:
	}
}
