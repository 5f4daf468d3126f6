package vsphere

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// clusterInfo is a compute cluster in which VMs of ours run.
type clusterInfo struct {
	// rules are its anti-affinity rules by name, groups its groups of VMs.
	rules  map[string]*ruleInfo
	groups map[string]*groupInfo
	// drs is set while DRS is enabled in the cluster. Without DRS, a preferred
	// rule has no effect.
	drs bool
	// stale is set when the rules may be out of date, partial when vCenter
	// reported only a part of a change of the settings.
	stale, partial bool
	// pendingChange is the change that pendingTask makes. It is valid until
	// vCenter reports the cluster's settings again.
	pendingTask   ref
	pendingChange clusterChange
}

// ruleInfo is an anti-affinity rule.
type ruleInfo struct {
	types.ClusterRuleInfo
	vms map[ref]bool
}

// applyCluster stores the changed properties of a compute cluster.
func (o *objectCache) applyCluster(u types.ObjectUpdate) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.clusters, u.Obj)
		delete(o.usableHosts, u.Obj)
		return
	}
	for _, c := range u.ChangeSet {
		if c.Name == usableProperty {
			o.usableHosts[u.Obj], _ = c.Val.(int32)
			continue
		}
		config, whole := c.Val.(types.ClusterConfigInfoEx)
		if c.Name != settingsProperty || !whole {
			if known := o.clusters[u.Obj]; known != nil {
				known.stale, known.partial = true, true
			}
			continue
		}
		o.clusters[u.Obj] = newClusterInfo(&config)
	}
}

func newClusterInfo(config *types.ClusterConfigInfoEx) *clusterInfo {
	c := &clusterInfo{rules: map[string]*ruleInfo{}, groups: map[string]*groupInfo{}, drs: ptr.Deref(config.DrsConfig.Enabled, false)}
	for _, group := range config.Group {
		if g, ok := group.(*types.ClusterVmGroup); ok {
			c.groups[g.Name] = &groupInfo{ClusterGroupInfo: g.ClusterGroupInfo, vms: setOf(g.Vm)}
		}
	}
	for _, rule := range config.Rule {
		if r, ok := rule.(*types.ClusterAntiAffinityRuleSpec); ok {
			c.rules[r.Name] = &ruleInfo{ClusterRuleInfo: r.ClusterRuleInfo, vms: setOf(r.Vm)}
		}
	}
	return c
}

func setOf(vms []ref) map[ref]bool {
	set := make(map[ref]bool, len(vms))
	for _, vm := range vms {
		set[vm] = true
	}
	return set
}

// rule returns a rule as it is, or as a task is about to make it.
func (c *clusterInfo) rule(o *objectCache, name string) *ruleInfo {
	if pending, ok := c.pendingChange.rules[name]; ok && !c.pendingFailed(o) {
		return pending
	}
	return c.rules[name]
}

// pendingFailed reports whether the task that changes the cluster has failed.
func (c *clusterInfo) pendingFailed(o *objectCache) bool {
	task := o.tasks[c.pendingTask]
	return task != nil && task.failed()
}

// clusterInfoOf returns the compute cluster of a VM, with its settings if these
// are known.
func (o *objectCache) clusterInfoOf(info *vmInfo) (ref, *clusterInfo) {
	at, ok := o.clusterOf(info)
	if !ok {
		return ref{}, nil // a standalone host has no rules
	}
	return at, o.clusters[at]
}

// ruleOutOfSync reports whether the rule of a machine's group has to be changed
// for its VM. The caller holds the lock.
func (i *inventory) ruleOutOfSync(vm ref, m *machine, info *vmInfo) bool {
	if m.desired.Rule == "" {
		return false
	}
	at, cluster := i.objects.clusterInfoOf(info)
	if cluster == nil {
		return false
	}
	rule := cluster.rule(i.objects, m.desired.Rule)
	switch {
	case m.desired.AntiAffinity == infrav1.AntiAffinityNone:
		return rule != nil && rule.vms[vm]
	case i.hasTooFewHosts(m.desired.Rule, at):
		return rule != nil
	case rule != nil:
		return !rule.vms[vm] || ptr.Deref(rule.Mandatory, false) != i.groups[m.desired.Rule].mandatory()
	case !cluster.drs && m.desired.AntiAffinity != infrav1.AntiAffinityRequired:
		return false // a rule would have no effect, or is not allowed
	default:
		return i.hasMembers(m.desired.Rule, at, 2)
	}
}

// hasTooFewHosts reports whether a preferred rule would leave no host of a
// compute cluster without a VM of the group. vSphere HA does not restart a VM
// against a rule, and DRS does not evacuate a host against a rule. The caller
// holds the lock.
func (i *inventory) hasTooFewHosts(rule string, at ref) bool {
	return !i.groups[rule].mandatory() && i.hasMembers(rule, at, int(i.objects.usableHosts[at]))
}

// members returns the VMs that belong in a group's rule in a compute cluster,
// as far as their machines are known. The caller holds the lock.
func (i *inventory) members(rule string, at ref) map[ref]bool {
	out := map[ref]bool{}
	for id := range i.peers(rule) {
		if vm, in := i.member(id, at); in {
			out[vm] = true
		}
	}
	return out
}

// hasMembers reports whether a group has n VMs or more in a compute cluster.
// The caller holds the lock.
func (i *inventory) hasMembers(rule string, at ref, n int) bool {
	for id := range i.peers(rule) {
		if n <= 0 {
			break
		}
		if _, in := i.member(id, at); in {
			n--
		}
	}
	return n <= 0
}

// member returns a machine's VM and whether it belongs in the rule of its
// group in a compute cluster. The caller holds the lock.
func (i *inventory) member(id uuid.UUID, at ref) (ref, bool) {
	m, vm := i.machines[id], i.objects.byID[id]
	info := i.objects.vms[vm]
	if m == nil || info == nil || m.deleting || m.desired.AntiAffinity == infrav1.AntiAffinityNone {
		return vm, false
	}
	in, ok := i.objects.clusterOf(info)
	return vm, ok && in == at
}

// nonMembers returns the VMs of a group's machines that do not belong in its
// rule in a compute cluster. The caller holds the lock.
func (i *inventory) nonMembers(rule string, at ref) map[ref]bool {
	in, out := i.members(rule, at), map[ref]bool{}
	for id := range i.peers(rule) {
		if vm, known := i.objects.byID[id]; known && !in[vm] {
			out[vm] = true
		}
	}
	return out
}

// plannedRule is the target state of a rule.
type plannedRule struct {
	name      string
	mandatory *bool
	members   map[ref]bool
}

// planRule returns the target state of a group's rule in a compute cluster. A
// VM in the rule whose machine is not known yet stays in it: the manager may
// have just started. A preferred rule has no members while the cluster has too
// few hosts for them. The caller holds the lock.
func (i *inventory) planRule(name string, at ref, mandatory *bool) plannedRule {
	p := plannedRule{name: name, mandatory: mandatory, members: i.members(name, at)}
	nonMembers := i.nonMembers(name, at)
	if rule := i.objects.clusters[at].rules[name]; rule != nil {
		for vm := range rule.vms {
			if _, exists := i.objects.ids[vm]; exists && !nonMembers[vm] {
				p.members[vm] = true
			}
		}
	}
	if !ptr.Deref(mandatory, false) && len(p.members) >= int(i.objects.usableHosts[at]) {
		clear(p.members)
	}
	return p
}

// change returns the change that brings a rule to its target state, or nil. A
// rule needs two VMs. The administrators of the vCenter decide whether it is
// enabled.
func (p plannedRule) change(current *ruleInfo) *types.ClusterRuleSpec {
	few := len(p.members) < 2
	switch {
	case current == nil && few:
		return nil
	case current == nil:
		return p.spec(types.ArrayUpdateOperationAdd, types.ClusterRuleInfo{Enabled: ptr.To(true)})
	case few:
		return &types.ClusterRuleSpec{ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationRemove, RemoveKey: current.Key}}
	case maps.Equal(p.members, current.vms) && ptr.Deref(current.Mandatory, false) == ptr.Deref(p.mandatory, false):
		return nil
	default:
		return p.spec(types.ArrayUpdateOperationEdit, types.ClusterRuleInfo{Key: current.Key, RuleUuid: current.RuleUuid, Enabled: current.Enabled})
	}
}

func (p plannedRule) spec(op types.ArrayUpdateOperation, info types.ClusterRuleInfo) *types.ClusterRuleSpec {
	info.Name, info.Mandatory, info.UserCreated = p.name, p.mandatory, ptr.To(true)
	return &types.ClusterRuleSpec{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: op},
		Info:            &types.ClusterAntiAffinityRuleSpec{ClusterRuleInfo: info, Vm: byValue(p.members)},
	}
}

// ruleWorker changes rules, with one request at a time for each compute
// cluster. A request has all changes that are due by then.
type ruleWorker struct {
	session *session

	mu     sync.Mutex
	queued map[ref]map[uuid.UUID]bool
	// running are the compute clusters that have a worker.
	running map[ref]bool
}

// enqueue queues a machine whose rule has to be changed.
func (r *ruleWorker) enqueue(at ref, id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queued[at] == nil {
		r.queued[at] = map[uuid.UUID]bool{}
	}
	r.queued[at][id] = true
	if !r.running[at] {
		r.running[at] = true
		go r.run(at)
	}
}

// takeQueued returns the queued machines. If there are none, the worker ends.
func (r *ruleWorker) takeQueued(at ref) []uuid.UUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Collect(maps.Keys(r.queued[at]))
	delete(r.queued, at)
	if len(ids) == 0 {
		delete(r.running, at)
	}
	return ids
}

func (r *ruleWorker) run(at ref) {
	for {
		if !r.session.waitFor(r.session.Timeouts.BatchDelay) {
			r.stop(at)
			return
		}
		ids := r.takeQueued(at)
		if len(ids) == 0 {
			return
		}
		r.change(at, ids)
	}
}

// stop drops the queue because the session ends.
func (r *ruleWorker) stop(at ref) {
	for {
		ids := r.takeQueued(at)
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			r.session.inv.ruleKept(id)
			r.session.inv.end(id, ref{}, nil)
		}
	}
}

// change changes the rules of machines with one request and waits until the
// task has ended, so that the next change starts from its result.
func (r *ruleWorker) change(at ref, ids []uuid.UUID) {
	inv := r.session.inv
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.refresh(ctx, at); err != nil {
		inv.finish(vcenter.AsError(err), ids...)
		return
	}
	change := inv.planChange(at, ids)
	for id, group := range change.missing {
		inv.finish(vcenter.AsError(noVMGroup(group)), id)
	}
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return change.missing[id] != "" })
	if len(change.spec.RulesSpec)+len(change.spec.GroupSpec) == 0 {
		inv.finish(nil, ids...)
		return
	}
	task, err := r.reconfigure(ctx, at, &change.spec)
	if err != nil {
		inv.markStale(at)
		inv.finish(vcenter.AsError(vcenter.Classify(r.session.Server(), err)), ids...)
		return
	}
	ended := inv.recordPending(at, task, change)
	for _, id := range ids {
		inv.end(id, task, nil)
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	inv.endChange(at, task)
}

func (r *ruleWorker) reconfigure(ctx context.Context, at ref, spec *types.ClusterConfigSpecEx) (task ref, err error) {
	err = r.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		res, err := methods.ReconfigureComputeResource_Task(ctx, c, &types.ReconfigureComputeResource_Task{
			This: at, Modify: true, Spec: spec,
		})
		if err == nil {
			task = res.Returnval
		}
		return err
	})
	return task, err
}

// refresh reads the rules of a compute cluster if they may be out of date:
// after a failure, or when vCenter reported only a part of a change.
func (r *ruleWorker) refresh(ctx context.Context, at ref) error {
	if !r.session.inv.isStale(at) {
		return nil
	}
	err := r.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		return r.session.inv.readCluster(ctx, c, at)
	})
	return vcenter.Classify(r.session.Server(), err)
}

// readCluster reads the settings of a compute cluster.
func (i *inventory) readCluster(ctx context.Context, c *vim25.Client, at ref) error {
	var cluster mo.ClusterComputeResource
	if err := object.NewCommon(c, at).Properties(ctx, at, []string{settingsProperty}, &cluster); err != nil {
		return fmt.Errorf("reading the compute cluster's rules: %w", err)
	}
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return nil
	}
	i.update(func(o *objectCache) []uuid.UUID {
		o.clusters[at] = newClusterInfo(config)
		return o.allUUIDs()
	})
	return nil
}

// takePartial returns the compute clusters for which vCenter reported only a
// part of a change, and marks them as read.
func (i *inventory) takePartial() (clusters []ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for at, cluster := range i.objects.clusters {
		if cluster.partial {
			cluster.partial = false
			clusters = append(clusters, at)
		}
	}
	return clusters
}

// readPartial reads the settings of which vCenter reported only a part.
// Settings that cannot be read now are read before they are changed.
func (s *stream) readPartial(ctx context.Context, inv *inventory) error {
	for _, at := range inv.takePartial() {
		if err := inv.readCluster(ctx, s.client, at); err != nil && vcenter.IsAmbiguous(err) {
			return err
		}
	}
	return nil
}

// planChange returns the change of a compute cluster for which machines wait.
func (i *inventory) planChange(at ref, ids []uuid.UUID) clusterChange {
	i.mu.Lock()
	defer i.mu.Unlock()
	change := clusterChange{rules: map[string]*ruleInfo{}, groups: map[string]*groupInfo{}, missing: map[uuid.UUID]string{}}
	cluster := i.objects.clusters[at]
	if cluster == nil {
		return change
	}
	i.planGroups(at, ids, &change)
	for _, id := range ids {
		m := i.machines[id]
		if m == nil || m.desired.Rule == "" {
			continue
		}
		if _, done := change.rules[m.desired.Rule]; done {
			continue
		}
		p := i.planRule(m.desired.Rule, at, ptr.To(i.groups[m.desired.Rule].mandatory()))
		current := cluster.rules[m.desired.Rule]
		change.rules[p.name] = current
		spec := p.change(current)
		if spec == nil {
			continue
		}
		change.spec.RulesSpec = append(change.spec.RulesSpec, *spec)
		change.rules[p.name] = nil
		if spec.Info != nil {
			change.rules[p.name] = &ruleInfo{ClusterRuleInfo: *spec.Info.GetClusterRuleInfo(), vms: p.members}
		}
	}
	return change
}

// recordPending records the change that a task makes to a compute cluster. The
// channel is closed when the task has ended.
func (i *inventory) recordPending(at, task ref, change clusterChange) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if cluster := i.objects.clusters[at]; cluster != nil {
		cluster.pendingTask, cluster.pendingChange = task, change
	}
	ended := make(chan struct{})
	if t := i.objects.tasks[task]; t != nil && t.ended() {
		close(ended)
		return ended
	}
	i.awaitedTasks[task] = ended
	return ended
}

// endChange records the end of a task on a compute cluster.
func (i *inventory) endChange(at, task ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.awaitedTasks, task)
	if t := i.objects.tasks[task]; t == nil || !t.ended() || t.failed() {
		i.markStaleLocked(at)
	}
}

// markStale makes the worker read a compute cluster's rules before the next
// change.
func (i *inventory) markStale(at ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.markStaleLocked(at)
}

func (i *inventory) markStaleLocked(at ref) {
	if cluster := i.objects.clusters[at]; cluster != nil {
		cluster.stale, cluster.pendingChange = true, clusterChange{}
	}
}

func (i *inventory) isStale(at ref) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	cluster := i.objects.clusters[at]
	return cluster != nil && cluster.stale
}

// ruleToLeave returns the compute cluster in which the rule of a machine's
// group has to be changed before its VM is deleted. If the other VMs of the
// rule are deleted too, or are fewer than two, the rule would otherwise stay
// and no controller would delete it.
func (i *inventory) ruleToLeave(id uuid.UUID) (ref, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, vm := i.machines[id], i.objects.byID[id]
	info := i.objects.vms[vm]
	if m == nil || info == nil || m.ruleLeft || m.desired.Rule == "" {
		return ref{}, false
	}
	at, cluster := i.objects.clusterInfoOf(info)
	if cluster == nil {
		return ref{}, false
	}
	rule := cluster.rule(i.objects, m.desired.Rule)
	if rule == nil {
		return ref{}, false
	}
	rest, nonMembers := 0, i.nonMembers(m.desired.Rule, at)
	for other := range rule.vms {
		if _, exists := i.objects.ids[other]; exists && other != vm && !nonMembers[other] {
			rest++
		}
	}
	m.ruleLeft = rest < 2
	return at, m.ruleLeft
}

// ruleKept records that a machine's rule was not changed after all: its VM must
// not be deleted before that.
func (i *inventory) ruleKept(id uuid.UUID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.machines[id]; m != nil {
		m.ruleLeft = false
	}
}
