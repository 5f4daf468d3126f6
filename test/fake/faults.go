package fake

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// always is the number of calls of a fault that does not expire.
const always = -1

// Fail makes each call of a verb fail with err until Repair is called.
func (h *Hypervisor) Fail(verb Verb, err error) { h.set(h.faults, verb, err, always) }

// FailNext makes the next call of a verb fail with err.
func (h *Hypervisor) FailNext(verb Verb, err error) { h.set(h.faults, verb, err, 1) }

// FailLater makes each action that a verb starts fail with err until Repair is
// called: the call succeeds, and a later Observe reports the failure.
func (h *Hypervisor) FailLater(verb Verb, err error) { h.set(h.workFaults, verb, err, always) }

// LoseReply makes the next call of a verb start its action and nevertheless
// fail with err, as when a connection breaks or the caller crashes.
func (h *Hypervisor) LoseReply(verb Verb, err error) { h.set(h.replyFaults, verb, err, 1) }

// Ignore makes calls of a verb succeed without an effect, as with a guest that
// does not react to a shutdown request.
func (h *Hypervisor) Ignore(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ignored[verb] = true
}

// StopIgnoring reverts Ignore.
func (h *Hypervisor) StopIgnoring(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ignored, verb)
}

// Repair removes all faults of a verb.
func (h *Hypervisor) Repair(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.faults, verb)
	delete(h.workFaults, verb)
	delete(h.replyFaults, verb)
}

func (h *Hypervisor) set(faults map[Verb]*fault, verb Verb, err error, times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	faults[verb] = &fault{err: err, left: times}
}

// Hold prevents the actions that a verb starts from completing, so that VMs
// stay Busy.
func (h *Hypervisor) Hold(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[verb] = true
}

// Release completes the actions that Hold stopped and reverts Hold.
func (h *Hypervisor) Release(verb Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, verb)
	for key := range h.vms {
		h.complete(key)
	}
}

// PowerOff powers a VM off without the driver.
func (h *Hypervisor) PowerOff(key hypervisor.Key) {
	h.edit(key, func(v *vm) { v.observed.State, v.observed.Addresses = hypervisor.Stopped, nil })
}

// SetOutOfSync makes a VM report a difference to its machine.
func (h *Hypervisor) SetOutOfSync(key hypervisor.Key, difference string) {
	h.edit(key, func(v *vm) { v.observed.OutOfSync = difference })
}

// SetNewOutOfSync makes new VMs report a difference to their machine.
func (h *Hypervisor) SetNewOutOfSync(difference string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newOutOfSync = difference
}

// Migrate moves a VM to another host without the driver.
func (h *Hypervisor) Migrate(key hypervisor.Key, host string) {
	h.edit(key, func(v *vm) { v.observed.Host = host })
}

// Limit sets the number of concurrent creations; zero removes the limit.
// Machines whose creation was rejected are notified when they can retry.
func (h *Hypervisor) Limit(creations int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.maxCreations = creations
	h.notifyQueued()
}

// SetSize sets the capacity of machines that do not exist yet.
func (h *Hypervisor) SetSize(size hypervisor.Size) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = size
}

// SetAddresses sets the addresses that a guest reports.
func (h *Hypervisor) SetAddresses(key hypervisor.Key, addresses ...clusterv1.MachineAddress) {
	h.edit(key, func(v *vm) { v.addresses, v.observed.Addresses = addresses, addresses })
}

// SetReport sets the boot progress that a guest reports.
func (h *Hypervisor) SetReport(key hypervisor.Key, report hypervisor.Report) {
	h.edit(key, func(v *vm) { v.observed.Report = report })
}

// SetProviderID sets another provider ID of a VM without the driver.
func (h *Hypervisor) SetProviderID(key hypervisor.Key, id string) {
	h.edit(key, func(v *vm) { v.observed.ProviderID = id })
}

func (h *Hypervisor) edit(key hypervisor.Key, change func(*vm)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.vms[key]; v != nil {
		change(v)
		h.notify(key)
	}
}

// Remove deletes a VM without the driver.
func (h *Hypervisor) Remove(key hypervisor.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.vms, key)
	h.notify(key)
}

// AddForeign adds a VM with the name of the machine and without the owner mark.
func (h *Hypervisor) AddForeign(key hypervisor.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vms[key] = &vm{observed: hypervisor.VM{State: hypervisor.Running}, foreign: true}
}

// HasUserData reports whether the settings of a VM contain the bootstrap data.
func (h *Hypervisor) HasUserData(key hypervisor.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.vms[key]
	return v != nil && v.observed.UserData
}

// Exists reports whether a VM with the name of the machine exists, with or
// without the owner mark.
func (h *Hypervisor) Exists(key hypervisor.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.vms[key]
	return v != nil && !v.isRemainder()
}

// Created returns the number of VMs that were created for a machine.
func (h *Hypervisor) Created(key hypervisor.Key) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.created[key]
}

// CreateOptions returns the options of the last VM that was created for a
// machine.
func (h *Hypervisor) CreateOptions(key hypervisor.Key) hypervisor.CreateOptions {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.options[key]
}

// Calls returns the number of calls of a verb, including failed calls.
func (h *Hypervisor) Calls(verb Verb) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[verb]
}

// SetEndpoint sets the result of Inspect and notifies the controller of a
// cluster.
func (h *Hypervisor) SetEndpoint(cluster hypervisor.Key, endpoint hypervisor.Endpoint) {
	h.mu.Lock()
	h.endpoint = endpoint
	h.mu.Unlock()
	h.NotifyEndpoint(cluster)
}

// NotifyEndpoint delivers the key of a cluster, as when its endpoint became
// reachable or unreachable.
func (h *Hypervisor) NotifyEndpoint(cluster hypervisor.Key) {
	select {
	case h.endpointChanges <- cluster:
	default:
	}
}
