package ovirtsim

import (
	"maps"
	"slices"
)

// tag marks VMs. Tags form a tree.
type tag struct {
	meta

	parent string
}

// group is an affinity group.
type group struct {
	meta

	cluster            string
	enforcing          bool
	priority           string
	vmsRule, hostsRule affinityRule
	vms, hosts         []string
	// locked while a change is being made.
	locked bool
}

type affinityRule struct{ enabled, enforcing, positive bool }

// label is an affinity label: its VMs run on its hosts only.
type label struct {
	meta

	vms, hosts []string
}

func (s *Server) groupRoutes() map[string]handler {
	routes := map[string]handler{
		"GET tags":       func(q *request) (*elem, error) { return list(q, "tags", s.tags.items, tagElem) },
		"POST tags":      s.addTag,
		"GET tags/{}":    one(&s.tags, tagElem),
		"PUT tags/{}":    s.updateTag,
		"DELETE tags/{}": s.removeTag,
		"GET vms/{}/tags": s.onVM(func(q *request, v *vm) (*elem, error) {
			return list(q, "tags", s.tags.where(func(t *tag) bool { return slices.Contains(v.tags, t.id) }), tagElem)
		}),
		"POST vms/{}/tags":      s.onVM(s.assignTag),
		"DELETE vms/{}/tags/{}": s.onVM(s.unassignTag),

		"GET clusters/{}/affinitygroups": func(q *request) (*elem, error) {
			return list(q, "affinity_groups", s.groups.where(func(g *group) bool { return g.cluster == q.args[0] }), s.groupElem)
		},
		"POST clusters/{}/affinitygroups":   s.addGroup,
		"GET clusters/{}/affinitygroups/{}": s.onGroup(func(_ *request, g *group) (*elem, error) { return s.groupElem(g), nil }),
		"PUT clusters/{}/affinitygroups/{}": s.onGroup(s.updateGroup),
		"DELETE clusters/{}/affinitygroups/{}": s.onGroup(func(q *request, g *group) (*elem, error) {
			if err := s.lockGroup(g); err != nil {
				return nil, err
			}
			s.groups.remove(g.id)
			return s.acted(q, "Removing Affinity Group "+g.name), nil
		}),
		"GET clusters/{}/affinitygroups/{}/vms": s.onGroup(func(q *request, g *group) (*elem, error) {
			return list(q, "vms", s.vms.where(func(v *vm) bool { return slices.Contains(g.vms, v.id) }), func(v *vm) *elem { return s.vmElem(v, false) })
		}),
		"POST clusters/{}/affinitygroups/{}/vms":        s.onGroup(s.addToGroup),
		"DELETE clusters/{}/affinitygroups/{}/vms/{}":   s.onGroup(s.removeFromGroup),
		"POST clusters/{}/affinitygroups/{}/hosts":      s.onGroup(s.addHostToGroup),
		"DELETE clusters/{}/affinitygroups/{}/hosts/{}": s.onGroup(s.removeHostFromGroup),
	}
	maps.Copy(routes, s.labelRoutes())
	return routes
}

func tagElem(t *tag) *elem {
	e := el("tag").at(apiPath+"/tags/"+t.id, t.id)
	return e.add(leaf("name", t.name), leaf("description", t.description), ref("parent", "tags", t.parent))
}

func (s *Server) addTag(q *request) (*elem, error) {
	t := &tag{meta: newMeta(""), parent: BlankTemplateID}
	t.apply(q.body)
	if t.name == "" {
		return nil, incomplete("Tag", "name")
	}
	if parent := q.body.get("parent").id(); parent != "" {
		t.parent = parent
	}
	if slices.ContainsFunc(s.tags.items, func(other *tag) bool { return other.name == t.name }) {
		return nil, conflict("The specified Tag name already exists.")
	}
	s.tags.add(t)
	return tagElem(t), nil
}

func (s *Server) updateTag(q *request) (*elem, error) {
	t, ok := s.tags.get(q.args[0])
	if !ok {
		return nil, notFound()
	}
	if t.id == BlankTemplateID {
		return nil, conflict("Cannot edit readonly tag")
	}
	t.apply(q.body)
	return tagElem(t), nil
}

func (s *Server) removeTag(q *request) (*elem, error) {
	t, ok := s.tags.get(q.args[0])
	switch {
	case !ok:
		return nil, notFound()
	case t.id == BlankTemplateID:
		return nil, conflict("Cannot edit readonly tag")
	}
	s.tags.remove(t.id)
	for _, v := range s.vms.items {
		v.tags = without(v.tags, t.id)
	}
	return s.acted(q, "Removing Tag "+t.name), nil
}

func (s *Server) assignTag(q *request, v *vm) (*elem, error) {
	t, ok := s.tags.get(q.body.id())
	for _, other := range s.tags.items {
		if name := q.body.str("name"); !ok && name != "" && other.name == name {
			t, ok = other, true
		}
	}
	switch {
	case q.body.id() == "" && q.body.str("name") == "":
		return nil, incomplete("Tag", "id|name")
	case !ok:
		return nil, missingEntity("Tag", q.body.id()+q.body.str("name"))
	}
	if !slices.Contains(v.tags, t.id) {
		v.tags = append(v.tags, t.id)
	}
	return tagElem(t), nil
}

func (s *Server) unassignTag(q *request, v *vm) (*elem, error) {
	if !slices.Contains(v.tags, q.args[1]) {
		return nil, notFound()
	}
	v.tags = without(v.tags, q.args[1])
	return s.acted(q, "Removing Tag from VM "+v.name), nil
}

func (s *Server) onGroup(f func(q *request, g *group) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		g, ok := s.groups.get(q.args[1])
		if !ok || g.cluster != q.args[0] {
			return nil, notFound()
		}
		return f(q, g)
	}
}

func (s *Server) groupElem(g *group) *elem {
	href := apiPath + "/clusters/" + g.cluster + "/affinitygroups/" + g.id
	e := el("affinity_group").at(href, g.id)
	e.add(leaf("name", g.name), leaf("description", g.description))
	e.add(links(href, "vms", "hosts", "vmlabels", "hostlabels")...)
	vms, hosts := el("vms"), el("hosts")
	for _, id := range g.vms {
		vms.add(ref("vm", "vms", id))
	}
	for _, id := range g.hosts {
		hosts.add(ref("host", "hosts", id))
	}
	return e.add(leaf("broken", false), leaf("enforcing", g.enforcing), g.hostsRule.elem("hosts_rule"), leaf("positive", g.vmsRule.positive),
		leaf("priority", g.priority), g.vmsRule.elem("vms_rule"), ref("cluster", "clusters", g.cluster), vms, hosts)
}

func (r affinityRule) elem(name string) *elem {
	return el(name, leaf("enabled", r.enabled), leaf("enforcing", r.enforcing), leaf("positive", r.positive))
}

// apply applies the fields of a request body. The old flags, from the time when
// a group had one rule, are the rule of its VMs.
func (g *group) apply(body *elem) error {
	g.meta.apply(body)
	body.setString("priority", &g.priority)
	if body.get("positive") != nil {
		g.vmsRule.enabled = true
	}
	for _, set := range []struct {
		path string
		to   *bool
	}{
		{"enforcing", &g.enforcing},
		{"enforcing", &g.vmsRule.enforcing},
		{"positive", &g.vmsRule.positive},
		{"vms_rule/enabled", &g.vmsRule.enabled},
		{"vms_rule/enforcing", &g.vmsRule.enforcing},
		{"vms_rule/positive", &g.vmsRule.positive},
		{"hosts_rule/enabled", &g.hostsRule.enabled},
		{"hosts_rule/enforcing", &g.hostsRule.enforcing},
		{"hosts_rule/positive", &g.hostsRule.positive},
	} {
		if err := body.setBool(set.path, set.to); err != nil {
			return err
		}
	}
	if list := body.get("vms"); list != nil {
		g.vms = ids(list.all("vm"))
	}
	if list := body.get("hosts"); list != nil {
		g.hosts = ids(list.all("host"))
	}
	return nil
}

func (s *Server) addGroup(q *request) (*elem, error) {
	if _, ok := s.clusters.get(q.args[0]); !ok {
		return nil, notFound()
	}
	g := &group{meta: newMeta(""), cluster: q.args[0], priority: "1"}
	if err := g.apply(q.body); err != nil {
		return nil, err
	}
	if g.name == "" {
		return nil, incomplete("AffinityGroup", "name")
	}
	if slices.ContainsFunc(s.groups.items, func(other *group) bool { return other.cluster == g.cluster && other.name == g.name }) {
		return nil, invalid("Cannot add Affinity Group. Affinity Group name already exists.")
	}
	s.groups.add(g)
	return s.groupElem(g), nil
}

func (s *Server) updateGroup(q *request, g *group) (*elem, error) {
	if err := s.lockGroup(g); err != nil {
		return nil, err
	}
	changed := *g
	if err := changed.apply(q.body); err != nil {
		return nil, err
	}
	changed.locked = g.locked
	*g = changed
	return s.groupElem(g), nil
}

// lockGroup refuses a change of a group while another is being made.
func (s *Server) lockGroup(g *group) error {
	if g.locked {
		return conflict("Cannot edit Affinity Group. Related operation is currently in progress. Please try again later.")
	}
	if s.opts.Timings[TimeGroupEdit] > 0 {
		g.locked = true
		s.when(TimeGroupEdit, func() { g.locked = false })
	}
	return nil
}

func (s *Server) addToGroup(q *request, g *group) (*elem, error) {
	v, ok := s.vms.get(q.body.id())
	switch {
	case !ok:
		return nil, missingEntity("VM", q.body.id())
	case v.cluster != g.cluster:
		return nil, invalid("Cannot edit Affinity Group. VM's cluster is different than the Affinity Group's cluster.")
	}
	if err := s.lockGroup(g); err != nil {
		return nil, err
	}
	if !slices.Contains(g.vms, v.id) {
		g.vms = append(g.vms, v.id)
	}
	return s.vmElem(v, false), nil
}

func (s *Server) removeFromGroup(q *request, g *group) (*elem, error) {
	if err := s.lockGroup(g); err != nil {
		return nil, err
	}
	if !slices.Contains(g.vms, q.args[2]) {
		return nil, notFound()
	}
	g.vms = without(g.vms, q.args[2])
	return s.acted(q, "Editing Affinity Group "+g.name), nil
}

func (s *Server) addHostToGroup(q *request, g *group) (*elem, error) {
	h, ok := s.hosts.get(q.body.id())
	if !ok {
		return nil, missingEntity("Host", q.body.id())
	}
	if err := s.lockGroup(g); err != nil {
		return nil, err
	}
	if !slices.Contains(g.hosts, h.id) {
		g.hosts = append(g.hosts, h.id)
	}
	return s.hostElem(h), nil
}

func (s *Server) removeHostFromGroup(q *request, g *group) (*elem, error) {
	if err := s.lockGroup(g); err != nil {
		return nil, err
	}
	g.hosts = without(g.hosts, q.args[2])
	return s.acted(q, "Editing Affinity Group "+g.name), nil
}
