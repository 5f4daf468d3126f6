package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// haState is the configuration of high availability.
type haState struct {
	resources map[int]*haResource
	rules     map[string]map[string]any
	// removed are the states of resources that were removed and that the HA manager still
	// has.
	removed map[int]string
}

// haResource is a VM that is managed.
type haResource struct {
	options map[string]any
	// failed is set in the state error, until a user requests the state disabled.
	failed bool
}

func newHAState() haState {
	return haState{resources: map[int]*haResource{}, rules: map[string]map[string]any{}, removed: map[int]string{}}
}

// requested is the state that the VM should have.
func (r *haResource) requested() string { return schema.Text(r.options["state"]) }

// current is the state of the resource.
func (r *haResource) current(v *vm) string {
	switch {
	case r.failed:
		return "error"
	case r.requested() == "started" && v != nil && v.running:
		return "started"
	case r.requested() == "started":
		return "starting"
	case v != nil && v.running && r.requested() != "ignored":
		return "request_stop"
	}
	return r.requested()
}

// haStateOf is the state of a VM in the list of resources. It is empty if the HA manager
// does not know the VM.
func (c *Cluster) haStateOf(v *vm) string {
	if r := c.ha.resources[v.vmid]; r != nil {
		return r.current(v)
	}
	return c.ha.removed[v.vmid]
}

// managed returns whether requests for the power of a VM go to the HA manager.
func (c *Cluster) managed(vmid int) bool {
	r := c.ha.resources[vmid]
	return r != nil && r.requested() != "ignored"
}

// sid returns the VMID of a resource.
func sid(text string) (int, error) {
	kind, number, ok := strings.Cut(text, ":")
	if !ok {
		kind, number = "vm", text
	}
	id, err := strconv.Atoi(number)
	if kind != "vm" || err != nil {
		return 0, schema.Failed("unable to parse resource id '%s'", text)
	}
	return id, nil
}

// resourceOf returns the resource of a request.
func (q *call) resourceOf() (int, *haResource, error) {
	id, err := sid(q.text("sid"))
	if err == nil && q.c.ha.resources[id] == nil {
		err = schema.Failed("no such resource 'vm:%d'", id)
	}
	return id, q.c.ha.resources[id], err
}

func (r *haResource) show(id int) map[string]any {
	out := maps.Clone(r.options)
	out["sid"], out["type"], out["digest"] = fmt.Sprintf("vm:%d", id), "vm", "0"
	return out
}

// listHA handles GET /cluster/ha/resources.
func listHA(q *call) (any, error) {
	list := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(q.c.ha.resources)) {
		if kind := q.text("type"); kind == "" || kind == "vm" {
			list = append(list, q.c.ha.resources[id].show(id))
		}
	}
	return list, nil
}

func getHA(q *call) (any, error) {
	id, r, err := q.resourceOf()
	if err != nil {
		return nil, err
	}
	return r.show(id), nil
}

// haOptions are the options of a resource.
var haOptions = []string{"state", "comment", "failback", "max_relocate", "max_restart"}

// addHA handles POST /cluster/ha/resources.
func addHA(q *call) (any, error) {
	if err := q.requireQuorum(); err != nil {
		return nil, err
	}
	id, err := sid(q.text("sid"))
	switch {
	case err != nil:
		return nil, err
	case q.has("type") && q.text("type") != "vm":
		return nil, schema.Failed("types does not match")
	case q.has("group"):
		return nil, schema.Failed("invalid parameter 'group': ha groups have been migrated to rules")
	case q.c.vms[id] == nil:
		return nil, schema.Failed("unable to add resource 'vm:%d', VM does not exist", id)
	case q.c.ha.resources[id] != nil:
		return nil, schema.Failed("resource ID 'vm:%d' already defined", id)
	}
	r := &haResource{options: map[string]any{"state": "started"}}
	r.update(q)
	q.c.ha.resources[id] = r
	q.c.manage(id)
	return nil, nil //nolint:nilnil // null is the result
}

// update sets the options of a request.
func (r *haResource) update(q *call) {
	for _, name := range schema.SplitList(q.text("delete")) {
		delete(r.options, name)
	}
	for _, name := range haOptions {
		if q.has(name) {
			r.options[name] = qemuValue(name, q.text(name))
		}
	}
	r.failed = r.failed && r.options["state"] != "disabled"
	if r.options["state"] == nil || r.options["state"] == "enabled" {
		r.options["state"] = "started"
	}
}

// qemuValue returns the numbers of a resource as numbers.
func qemuValue(name, text string) any {
	if name == "state" || name == "comment" {
		return text
	}
	n, _ := strconv.Atoi(text)
	return n
}

func updateHA(q *call) (any, error) {
	id, r, err := q.resourceOf()
	if err != nil {
		return nil, err
	}
	if q.has("group") {
		return nil, schema.Failed("invalid parameter 'group': ha groups have been migrated to rules")
	}
	r.update(q)
	q.c.manage(id)
	return nil, nil //nolint:nilnil // null is the result
}

func deleteHA(q *call) (any, error) {
	id, err := sid(q.text("sid"))
	if err != nil {
		return nil, err
	}
	if q.c.ha.resources[id] == nil {
		return nil, schema.Failed("cannot delete service 'vm:%d', not HA managed!", id)
	}
	if q.text("purge") != "0" {
		q.c.purgeHA(id)
	}
	q.c.removeHA(id)
	return nil, nil //nolint:nilnil // null is the result
}

// removeHA removes a resource. The HA manager notices that after a while.
func (c *Cluster) removeHA(vmid int) {
	r := c.ha.resources[vmid]
	if r == nil {
		return
	}
	c.ha.removed[vmid] = r.current(c.vms[vmid])
	delete(c.ha.resources, vmid)
	c.after(c.timings[TimeHA], func() { delete(c.ha.removed, vmid) })
}

// purgeHA removes a VM from resources and rules.
func (c *Cluster) purgeHA(vmid int) {
	c.removeHA(vmid)
	for name, rule := range c.ha.rules {
		left := slices.DeleteFunc(schema.SplitList(schema.Text(rule["resources"])), func(r string) bool { return r == fmt.Sprintf("vm:%d", vmid) })
		rule["resources"] = strings.Join(left, ",")
		if len(left) == 0 {
			delete(c.ha.rules, name)
		}
	}
}

// requestState sets the requested state of a resource.
func (c *Cluster) requestState(vmid int, state string) error {
	r := c.ha.resources[vmid]
	if r == nil {
		return schema.Failed("no such resource 'vm:%d'", vmid)
	}
	r.options["state"] = state
	r.failed = r.failed && state != "disabled"
	c.manage(vmid)
	return nil
}

// haStop starts the task that requests the stop of a resource.
func (q *call) haStop(vmid int) string {
	return q.fork("hastop", strconv.Itoa(vmid), func(t *task) { t.finish(q.c.requestState(vmid, "stopped")) }).upid
}

// manage acts for a resource after a while.
func (c *Cluster) manage(vmid int) {
	c.after(c.timings[TimeHA], func() {
		r, v := c.ha.resources[vmid], c.vms[vmid]
		if r == nil || r.failed || v == nil || v.config.Lock() != "" {
			return
		}
		n, err := c.node(v.node)
		switch {
		case err != nil || !n.online:
		case r.requested() == "started" && !v.running:
			c.startVM(v.node, "root@pam", v)
		case (r.requested() == "stopped" || r.requested() == "disabled") && v.running:
			c.fork(v.node, "root@pam", "qmshutdown", strconv.Itoa(vmid), func(t *task) {
				t.withLock(vmid, false, func() error { return c.halt(t, n, vmid, true, defaultTimeout, true) })
			})
		}
	})
}

// showRule is a rule as the API has it.
func showRule(name string, rule map[string]any) map[string]any {
	out := maps.Clone(rule)
	out["rule"], out["digest"] = name, "0"
	return out
}

// listRules handles GET /cluster/ha/rules.
func listRules(q *call) (any, error) {
	list := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(q.c.ha.rules)) {
		rule := q.c.ha.rules[name]
		has := slices.Contains(schema.SplitList(schema.Text(rule["resources"])), q.text("resource"))
		if q.has("type") && rule["type"] != q.text("type") || q.has("resource") && !has {
			continue
		}
		list = append(list, showRule(name, rule))
	}
	return list, nil
}

func getRule(q *call) (any, error) {
	rule := q.c.ha.rules[q.text("rule")]
	if rule == nil {
		return nil, schema.Failed("no such ha rule '%s'", q.text("rule"))
	}
	return showRule(q.text("rule"), rule), nil
}

// ruleOptions are the options of a rule.
var ruleOptions = []string{"type", "resources", "affinity", "nodes", "strict", "comment", "disable"}

// setRule handles POST /cluster/ha/rules and PUT /cluster/ha/rules/{rule}.
func setRule(create bool) handler {
	return func(q *call) (any, error) {
		if err := q.requireQuorum(); err != nil {
			return nil, err
		}
		name := q.text("rule")
		old := q.c.ha.rules[name]
		if create && old != nil {
			return nil, schema.Failed("HA rule '%s' already defined", name)
		}
		if !create && old == nil {
			return nil, schema.Failed("HA rule '%s' does not exist", name)
		}
		rule := map[string]any{}
		maps.Copy(rule, old)
		for _, option := range schema.SplitList(q.text("delete")) {
			delete(rule, option)
		}
		for _, option := range ruleOptions {
			if q.has(option) {
				rule[option] = q.text(option)
			}
		}
		if err := q.c.feasible(name, rule); err != nil {
			return nil, err
		}
		q.c.ha.rules[name] = rule
		return nil, nil
	}
}

// unmanaged are the resources of a list that are not configured.
func (c *Cluster) unmanaged(list []string) (names []string) {
	for _, text := range list {
		if id, err := sid(text); err != nil || c.ha.resources[id] == nil {
			names = append(names, text)
		}
	}
	return names
}

// missingNodes are the nodes of a rule that do not exist.
func (c *Cluster) missingNodes(rule map[string]any) (missing []string) {
	for _, node := range ruleNodes(rule) {
		if !slices.Contains(c.Nodes(), node) {
			missing = append(missing, node)
		}
	}
	return missing
}

// feasible returns an error for a rule that cannot be followed.
func (c *Cluster) feasible(name string, rule map[string]any) error {
	list := schema.SplitList(schema.Text(rule["resources"]))
	unmanaged := c.unmanaged(list)
	missing := c.missingNodes(rule)
	infeasible := func(option, text string) error {
		return &schema.Error{Status: 400, Message: fmt.Sprintf("Rule '%s' is invalid.\n", name), Errors: map[string]string{option: text}}
	}
	switch {
	case rule["type"] == "resource-affinity" && rule["affinity"] == nil:
		return schema.Failed("missing value for required option 'affinity'")
	case rule["type"] == "node-affinity" && rule["nodes"] == nil:
		return schema.Failed("missing value for required option 'nodes'")
	case len(list) == 0:
		return schema.Failed("no resources were specified")
	case len(unmanaged) > 0:
		return schema.Failed("cannot use unmanaged resource(s) %s.", strings.Join(unmanaged, ", "))
	case len(missing) > 0:
		return schema.Failed("cannot use non-existent node(s) %s.", strings.Join(missing, ", "))
	case rule["type"] == "resource-affinity" && len(list) < 2:
		return infeasible("resources", "rule is ineffective as there are less than two resources")
	case rule["type"] == "resource-affinity" && rule["affinity"] == "negative" && len(list) > len(c.nodes):
		return infeasible("resources", "rule defines more resources than available nodes")
	}
	if problem := c.conflict(name, rule); problem != "" {
		return infeasible("resources", problem)
	}
	return nil
}

// conflict is the reason why a rule cannot be followed together with the others. It is
// empty if there is none.
func (c *Cluster) conflict(name string, rule map[string]any) string {
	rules := maps.Clone(c.ha.rules)
	rules[name] = rule
	for other, r := range rules {
		if common := shared(rule, r); other != name && rule["type"] == "node-affinity" && r["type"] == "node-affinity" && len(common) > 0 {
			return fmt.Sprintf("resource '%s' is already used in another node affinity rule", common[0])
		}
	}
	for id, r := range rules {
		if r["affinity"] == "negative" && crowded(rules, id, name) {
			return "two or more resources are restricted to less nodes than available to the resources"
		}
	}
	return ""
}

// crowded returns whether the resources of a negative rule have too few nodes because of a
// rule, which may be that rule itself.
func crowded(rules map[string]map[string]any, negative, name string) bool {
	nodes, placed, concerned := map[string]bool{}, map[string]bool{}, negative == name
	for other, r := range rules {
		common := shared(rules[negative], r)
		if r["type"] != "node-affinity" || len(common) == 0 {
			continue
		}
		concerned = concerned || other == name
		for _, resource := range common {
			placed[resource] = true
		}
		for _, node := range ruleNodes(r) {
			nodes[node] = true
		}
	}
	return concerned && len(nodes) < len(placed)
}

// shared are the resources that are in two rules.
func shared(a, b map[string]any) []string {
	list := schema.SplitList(schema.Text(b["resources"]))
	return slices.DeleteFunc(schema.SplitList(schema.Text(a["resources"])), func(id string) bool { return !slices.Contains(list, id) })
}

// ruleNodes are the nodes of a rule without their priorities.
func ruleNodes(rule map[string]any) (nodes []string) {
	if rule["nodes"] == nil {
		return nil
	}
	for _, text := range schema.SplitList(schema.Text(rule["nodes"])) {
		node, _, _ := strings.Cut(text, ":")
		nodes = append(nodes, node)
	}
	return nodes
}

func deleteRule(q *call) (any, error) {
	delete(q.c.ha.rules, q.text("rule"))
	return nil, nil //nolint:nilnil // null is the result
}

// errUnexpected ends the tasks of a node that is lost.
var errUnexpected = errors.New("unexpected status")

// SetOnline changes whether a node is in the cluster. The VMs of a
// node that is lost end; those that are managed start on another node after a while.
func (c *Cluster) SetOnline(name string, online bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.node(name)
	if err != nil || n.online == online {
		return err
	}
	n.online = online
	if online {
		c.after(c.timings[TimeStatus], c.report)
		return nil
	}
	for _, t := range c.tasks {
		if t.node == name && !t.ended() {
			t.finish(errUnexpected)
		}
	}
	for _, v := range c.vms {
		if v.node == name && v.running {
			c.lose(v)
		}
	}
	c.after(c.timings[TimeFence], func() { c.recover(name) })
	return nil
}

// FailHA ends a VM whose restarts have failed as often as the HA manager tries them.
func (c *Cluster) FailHA(vmid int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, v := c.ha.resources[vmid], c.vms[vmid]
	if r == nil || v == nil {
		return schema.Failed("no such resource 'vm:%d'", vmid)
	}
	r.failed = true
	c.lose(v)
	return nil
}

// lose ends a VM with its node.
func (c *Cluster) lose(v *vm) {
	wasRunning := v.started
	c.call(v, TimeFork, c.powerOffGuest, func(error) {
		if v.started.Equal(wasRunning) {
			c.off(v)
		}
	})
}

// recover starts the managed VMs of a lost node on another one.
func (c *Cluster) recover(name string) {
	if n, err := c.node(name); err != nil || n.online || !c.quorate() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(c.ha.resources)) {
		v := c.vms[id]
		if v == nil || v.node != name || c.ha.resources[id].requested() != "started" || c.ha.resources[id].failed {
			continue
		}
		for _, to := range c.nodes {
			if to.online && c.movable(v, to) == nil && !c.separated(id, to) {
				v.node = to.Name
				c.startVM(to.Name, "root@pam", v)
				break
			}
		}
	}
}

// separated returns whether a rule keeps a VM off a node.
func (c *Cluster) separated(vmid int, n *node) bool {
	for _, rule := range c.ha.rules {
		list := schema.SplitList(schema.Text(rule["resources"]))
		if !slices.Contains(list, fmt.Sprintf("vm:%d", vmid)) {
			continue
		}
		if schema.Text(rule["strict"]) == "1" && !slices.Contains(ruleNodes(rule), n.Name) {
			return true
		}
		if rule["affinity"] != "negative" {
			continue
		}
		for _, text := range list {
			id, _ := sid(text)
			if other := c.vms[id]; id != vmid && other != nil && other.node == n.Name {
				return true
			}
		}
	}
	return false
}
