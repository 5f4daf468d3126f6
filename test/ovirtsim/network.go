package ovirtsim

import (
	"slices"
	"strings"
)

// network is a logical network of a data center.
type network struct {
	meta

	dataCenter string
}

// profile is how a VM's card joins a network.
type profile struct {
	meta

	network string
}

func (s *Server) networkRoutes() map[string]handler {
	return map[string]handler{
		"GET networks": func(q *request) (*elem, error) {
			items := inDataCenter(s, s.networks.items, func(n *network) string { return n.dataCenter })
			return listPlaced(q, "networks", items, s.networkElem)
		},
		"GET networks/{}": func(q *request) (*elem, error) {
			if n, ok := s.networks.get(q.args[0]); ok {
				return s.networkElem(n), nil
			}
			return nil, notFound()
		},
		"GET networks/{}/vnicprofiles": func(q *request) (*elem, error) {
			return list(q, "vnic_profiles", s.profiles.where(func(p *profile) bool { return p.network == q.args[0] }), s.profileElem)
		},
		"GET vnicprofiles": func(q *request) (*elem, error) {
			return list(q, "vnic_profiles", s.profiles.items, s.profileElem)
		},
		"POST vnicprofiles": s.addProfile,
		"GET vnicprofiles/{}": s.onProfile(func(_ *request, p *profile) (*elem, error) {
			return s.profileElem(p), nil
		}),
		"PUT vnicprofiles/{}": s.onProfile(func(q *request, p *profile) (*elem, error) {
			p.apply(q.body)
			return s.profileElem(p), nil
		}),
		"DELETE vnicprofiles/{}": s.onProfile(s.removeProfile),
	}
}

func (s *Server) networkElem(n *network) *elem {
	href := apiPath + "/networks/" + n.id
	e := el("network").at(href, n.id)
	e.add(n.elems()...)
	e.add(links(href, "networklabels", "permissions", "vnicprofiles")...)
	return e.add(leaf("mtu", 0), leaf("stp", false), el("usages", leaf("usage", "vm")), leaf("vdsm_name", n.name),
		ref("data_center", "datacenters", n.dataCenter))
}

func (s *Server) profileElem(p *profile) *elem {
	href := apiPath + "/vnicprofiles/" + p.id
	e := el("vnic_profile").at(href, p.id)
	e.add(p.elems()...)
	e.add(links(href, "permissions")...)
	return e.add(el("pass_through", leaf("mode", "disabled")), leaf("port_mirroring", false), ref("network", "networks", p.network))
}

func (s *Server) onProfile(f func(q *request, p *profile) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		p, ok := s.profiles.get(q.args[0])
		if !ok {
			return nil, notFound()
		}
		return f(q, p)
	}
}

func (s *Server) addProfile(q *request) (*elem, error) {
	p := &profile{meta: newMeta(""), network: q.body.get("network").id()}
	p.apply(q.body)
	if p.name == "" || p.network == "" {
		return nil, incomplete("VnicProfile", "name, network.id")
	}
	if _, ok := s.networks.get(p.network); !ok {
		return nil, missingEntity("Network", p.network)
	}
	if slices.ContainsFunc(s.profiles.items, func(other *profile) bool { return other.network == p.network && other.name == p.name }) {
		return nil, conflict("Cannot add VM network interface profile. The VM network interface profile's name is already used by an existing profile for the same network.\n-Please choose a different name.")
	}
	s.profiles.add(p)
	return s.profileElem(p), nil
}

func (s *Server) removeProfile(q *request, p *profile) (*elem, error) {
	var users []string
	for _, v := range s.vms.items {
		if slices.ContainsFunc(v.nics, func(n *nic) bool { return n.profile == p.id }) {
			users = append(users, v.name)
		}
	}
	if len(users) > 0 {
		return nil, conflict("Cannot remove VM network interface profile. This VM network interface profile is used by VMs:  %s.\n - Please remove it from this VMs and try again.", strings.Join(users, ", "))
	}
	s.profiles.remove(p.id)
	return s.acted(q, "Removing VM network interface profile "+p.name), nil
}
