package fake

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// always is a number of calls that never runs out.
const always = -1

// Fail makes every call of a verb fail with err until Mend.
func (h *Hypervisor) Fail(verb Verb, err error) { h.set(h.faults, verb, err, always) }

// FailNext makes the next call of a verb fail with err.
func (h *Hypervisor) FailNext(verb Verb, err error) { h.set(h.faults, verb, err, 1) }

// FailLater makes the work that every call of a verb starts fail with err
// until Mend: the call is accepted, and an Observe tells of the failure.
func (h *Hypervisor) FailLater(verb Verb, err error) { h.set(h.late, verb, err, always) }

// LoseReply makes the next call of a verb do its work and fail with err all
// the same, as when a connection breaks or the caller crashes.
func (h *Hypervisor) LoseReply(verb Verb, err error) { h.set(h.lost, verb, err, 1) }

// Ignore makes calls of a verb be accepted and lead to nothing, as a guest does
// that does not listen.
func (h *Hypervisor) Ignore(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ignored[verb] = true
}

// Listen ends Ignore.
func (h *Hypervisor) Listen(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ignored, verb)
}

// Mend ends all faults of a verb.
func (h *Hypervisor) Mend(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.faults, verb)
	delete(h.late, verb)
	delete(h.lost, verb)
}

func (h *Hypervisor) set(faults map[Verb]*fault, verb Verb, err error, times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	faults[verb] = &fault{err: err, left: times}
}

// Hold keeps the work that a verb starts from ending, so that VMs stay Busy.
func (h *Hypervisor) Hold(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[verb] = true
}

// Let ends the work that Hold kept, and holds no more.
func (h *Hypervisor) Let(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, verb)
	for key := range h.vms {
		h.end(key)
	}
}

// PowerOff powers a VM off outside.
func (h *Hypervisor) PowerOff(key hypervisor.Key) {
	h.edit(key, func(v *vm) { v.seen.State, v.seen.Addresses = hypervisor.Stopped, nil })
}

// Unsettle makes what surrounds a VM differ from what its machine asks.
func (h *Hypervisor) Unsettle(key hypervisor.Key, what string) {
	h.edit(key, func(v *vm) { v.seen.OutOfSync = what })
}

// UnsettleNew makes VMs come into being unsettled.
func (h *Hypervisor) UnsettleNew(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsettled = what
}

// Migrate moves a VM to another host outside.
func (h *Hypervisor) Migrate(key hypervisor.Key, host string) {
	h.edit(key, func(v *vm) { v.seen.Host = host })
}

// Limit bounds the creations that are under way at once; zero lifts the bound.
// Whoever is refused is told when it may ask again.
func (h *Hypervisor) Limit(creations int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = creations
	h.call()
}

// SetSize changes what machines that do not exist yet will have.
func (h *Hypervisor) SetSize(size hypervisor.Size) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = size
}

// Report sets the addresses a guest reports.
func (h *Hypervisor) Report(key hypervisor.Key, addresses ...clusterv1.MachineAddress) {
	h.edit(key, func(v *vm) { v.addresses, v.seen.Addresses = addresses, addresses })
}

// Say has a VM's guest tell how far its first boot is.
func (h *Hypervisor) Say(key hypervisor.Key, report hypervisor.Report) {
	h.edit(key, func(v *vm) { v.seen.Report = report })
}

// Identify gives a VM another provider ID outside.
func (h *Hypervisor) Identify(key hypervisor.Key, id string) {
	h.edit(key, func(v *vm) { v.seen.ProviderID = id })
}

func (h *Hypervisor) edit(key hypervisor.Key, change func(*vm)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.vms[key]; v != nil {
		change(v)
		h.push(key)
	}
}

// Lose takes a VM away outside.
func (h *Hypervisor) Lose(key hypervisor.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.vms, key)
	h.push(key)
}

// Plant adds a VM of the machine's name that is not ours.
func (h *Hypervisor) Plant(key hypervisor.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vms[key] = &vm{seen: hypervisor.VM{State: hypervisor.Running}, foreign: true}
}

// HoldsUserData reports whether a VM's settings hold the first-boot document.
func (h *Hypervisor) HoldsUserData(key hypervisor.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.vms[key]
	return v != nil && v.seen.UserData
}

// Have reports whether there is a VM of the machine's name, ours or not.
func (h *Hypervisor) Have(key hypervisor.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vms[key] != nil
}

// Made returns how many VMs were ever created for a machine.
func (h *Hypervisor) Made(key hypervisor.Key) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.made[key]
}

// Launched returns what the VM of a machine was last launched with.
func (h *Hypervisor) Launched(key hypervisor.Key) hypervisor.CreateOptions {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.launches[key]
}

// Calls returns how often a verb was called, failed calls included.
func (h *Hypervisor) Calls(verb Verb) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[verb]
}

// SetSite changes what Inspect sees and pushes the change to a cluster.
func (h *Hypervisor) SetSite(cluster hypervisor.Key, site hypervisor.Endpoint) {
	h.mu.Lock()
	h.site = site
	h.mu.Unlock()
	h.PushSite(cluster)
}

// PushSite tells that the endpoint of a cluster came or went.
func (h *Hypervisor) PushSite(cluster hypervisor.Key) {
	select {
	case h.siteChanges <- cluster:
	default:
	}
}
