package ovirtsim

import "slices"

func (s *Server) labelRoutes() map[string]handler {
	return map[string]handler{
		"GET affinitylabels":    func(q *request) (*elem, error) { return list(q, "affinity_labels", s.labels.items, labelElem) },
		"POST affinitylabels":   s.addLabel,
		"GET affinitylabels/{}": one(&s.labels, labelElem),
		"DELETE affinitylabels/{}": s.onLabel(func(q *request, l *label) (*elem, error) {
			if len(l.vms)+len(l.hosts) > 0 {
				return nil, conflict("Cannot delete affinity label, remove it from all entities first.")
			}
			s.labels.remove(l.id)
			return s.acted(q, "Removing Affinity Label "+l.name), nil
		}),
		"POST affinitylabels/{}/vms": s.onLabel(func(q *request, l *label) (*elem, error) {
			v, ok := s.vms.get(q.body.id())
			if !ok {
				return nil, missingEntity("VM", q.body.id())
			}
			l.vms = append(without(l.vms, v.id), v.id)
			return ref("vm", "vms", v.id), nil
		}),
		"DELETE affinitylabels/{}/vms/{}": s.onLabel(func(q *request, l *label) (*elem, error) {
			l.vms = without(l.vms, q.args[1])
			return s.acted(q, "Editing Affinity Label "+l.name), nil
		}),
		"POST affinitylabels/{}/hosts": s.onLabel(func(q *request, l *label) (*elem, error) {
			h, ok := s.hosts.get(q.body.id())
			if !ok {
				return nil, missingEntity("Host", q.body.id())
			}
			l.hosts = append(without(l.hosts, h.id), h.id)
			return ref("host", "hosts", h.id), nil
		}),
		"DELETE affinitylabels/{}/hosts/{}": s.onLabel(func(q *request, l *label) (*elem, error) {
			l.hosts = without(l.hosts, q.args[1])
			return s.acted(q, "Editing Affinity Label "+l.name), nil
		}),
		"GET vms/{}/affinitylabels": s.onVM(func(q *request, v *vm) (*elem, error) {
			return list(q, "affinity_labels", s.labels.where(func(l *label) bool { return slices.Contains(l.vms, v.id) }), labelElem)
		}),
		"POST vms/{}/affinitylabels": s.onVM(func(q *request, v *vm) (*elem, error) {
			l, ok := s.labels.get(q.body.id())
			if !ok {
				return nil, missingEntity("AffinityLabel", q.body.id())
			}
			l.vms = append(without(l.vms, v.id), v.id)
			return labelElem(l), nil
		}),
		"DELETE vms/{}/affinitylabels/{}": s.onVM(func(q *request, v *vm) (*elem, error) {
			l, ok := s.labels.get(q.args[1])
			if !ok || !slices.Contains(l.vms, v.id) {
				return nil, notFound()
			}
			l.vms = without(l.vms, v.id)
			return s.acted(q, "Editing Affinity Label "+l.name), nil
		}),
	}
}

func (s *Server) onLabel(f func(q *request, l *label) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		l, ok := s.labels.get(q.args[0])
		if !ok {
			return nil, notFound()
		}
		return f(q, l)
	}
}

func labelElem(l *label) *elem {
	href := apiPath + "/affinitylabels/" + l.id
	e := el("affinity_label").at(href, l.id)
	e.add(leaf("name", l.name), leaf("read_only", false))
	e.add(links(href, "vms", "hosts")...)
	vms, hosts := el("vms"), el("hosts")
	for _, id := range l.vms {
		vms.add(ref("vm", "vms", id))
	}
	for _, id := range l.hosts {
		hosts.add(ref("host", "hosts", id))
	}
	return e.add(vms, hosts)
}

func (s *Server) addLabel(q *request) (*elem, error) {
	l := &label{meta: newMeta("")}
	l.apply(q.body)
	switch {
	case l.name == "":
		return nil, incomplete("AffinityLabel", "name")
	case slices.ContainsFunc(s.labels.items, func(other *label) bool { return other.name == l.name }):
		return nil, conflict("Cannot add affinity label with a conflicting NAME.")
	}
	s.labels.add(l)
	return labelElem(l), nil
}
