package ovirtsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// UserSpec is a user other than the administrator.
type UserSpec struct {
	Name     string `json:"name"`
	Password string `json:"password"`
	// Permits are the permissions of the user's role, by the engine's names such
	// as create_vm. A role with login only reads.
	Permits []string `json:"permits,omitempty"`
	// On are the objects that the role was given on, as KIND/NAME, the kinds being
	// data_center, cluster, storage_domain and template. If not set, the role holds
	// everywhere.
	On []string `json:"on,omitempty"`
	// SystemPermits are those of a second role, which holds everywhere.
	SystemPermits []string `json:"systemPermits,omitempty"`
	// UserRole is set for a user without an administrative role, who sees only
	// with the header Filter, and only own VMs.
	UserRole bool `json:"userRole,omitempty"`
	// Account is set for an account of the directory that is not a user of the
	// engine: a client adds the user and gives it roles.
	Account bool `json:"account,omitempty"`
}

// user is a user that can log in.
type user struct {
	UserSpec

	id string
	// known is set for a user of the engine, and not set for an account that is in
	// the directory only.
	known bool
	// role is the one that Permits are in, if there are any.
	role *role
	// all is set for the administrator, who needs no permits.
	all bool
}

// permits are the permissions that requests require, by route. All other routes
// require the administrator.
var permits = map[string]string{
	"POST vms":                                      "create_vm",
	"PUT vms/{}":                                    "edit_vm_properties",
	"DELETE vms/{}":                                 "delete_vm",
	"POST vms/{}/start":                             "run_vm",
	"POST vms/{}/stop":                              "stop_vm",
	"POST vms/{}/shutdown":                          "shut_down_vm",
	"POST vms/{}/reboot":                            "reboot_vm",
	"POST vms/{}/reset":                             "reset_vm",
	"POST vms/{}/suspend":                           "hibernate_vm",
	"POST vms/{}/migrate":                           "migrate_vm",
	"POST vms/{}/cancelmigration":                   "migrate_vm",
	"POST vms/{}/diskattachments":                   "configure_vm_storage",
	"PUT vms/{}/diskattachments/{}":                 "configure_vm_storage",
	"DELETE vms/{}/diskattachments/{}":              "configure_vm_storage",
	"POST vms/{}/nics":                              "configure_vm_network",
	"PUT vms/{}/nics/{}":                            "configure_vm_network",
	"DELETE vms/{}/nics/{}":                         "configure_vm_network",
	"POST vms/{}/nics/{}/activate":                  "configure_vm_network",
	"POST vms/{}/nics/{}/deactivate":                "configure_vm_network",
	"DELETE vms/{}/graphicsconsoles/{}":             "edit_vm_properties",
	"POST vms/{}/snapshots":                         "manipulate_vm_snapshots",
	"DELETE vms/{}/snapshots/{}":                    "manipulate_vm_snapshots",
	"POST vms/{}/numanodes":                         "edit_vm_properties",
	"POST vms/{}/hostdevices":                       "edit_admin_vm_properties",
	"DELETE vms/{}/hostdevices/{}":                  "edit_admin_vm_properties",
	"POST templates":                                "create_template",
	"PUT templates/{}":                              "edit_template_properties",
	"DELETE templates/{}":                           "delete_template",
	"POST disks":                                    "create_disk",
	"PUT disks/{}":                                  "edit_disk_properties",
	"DELETE disks/{}":                               "delete_disk",
	"POST disks/{}/copy":                            "configure_disk_storage",
	"DELETE storagedomains/{}/disks/{}":             "delete_disk",
	"POST imagetransfers":                           "edit_disk_properties",
	"POST imagetransfers/{}/finalize":               "edit_disk_properties",
	"POST imagetransfers/{}/cancel":                 "edit_disk_properties",
	"POST vnicprofiles":                             "create_network_vnic_profile",
	"PUT vnicprofiles/{}":                           "configure_network_vnic_profile",
	"DELETE vnicprofiles/{}":                        "delete_network_vnic_profile",
	"POST tags":                                     "tag_management",
	"PUT tags/{}":                                   "tag_management",
	"DELETE tags/{}":                                "tag_management",
	"POST vms/{}/tags":                              "tag_management",
	"DELETE vms/{}/tags/{}":                         "tag_management",
	"POST affinitylabels":                           "tag_management",
	"DELETE affinitylabels/{}":                      "tag_management",
	"POST affinitylabels/{}/vms":                    "tag_management",
	"DELETE affinitylabels/{}/vms/{}":               "tag_management",
	"POST affinitylabels/{}/hosts":                  "tag_management",
	"DELETE affinitylabels/{}/hosts/{}":             "tag_management",
	"POST vms/{}/affinitylabels":                    "tag_management",
	"DELETE vms/{}/affinitylabels/{}":               "tag_management",
	"POST clusters/{}/affinitygroups":               "manipulate_affinity_groups",
	"PUT clusters/{}/affinitygroups/{}":             "manipulate_affinity_groups",
	"POST hosts/{}/activate":                        "manipulate_host",
	"POST hosts/{}/deactivate":                      "manipulate_host",
	"DELETE clusters/{}/affinitygroups/{}":          "manipulate_affinity_groups",
	"POST clusters/{}/affinitygroups/{}/vms":        "manipulate_affinity_groups",
	"DELETE clusters/{}/affinitygroups/{}/vms/{}":   "manipulate_affinity_groups",
	"POST clusters/{}/affinitygroups/{}/hosts":      "manipulate_affinity_groups",
	"DELETE clusters/{}/affinitygroups/{}/hosts/{}": "manipulate_affinity_groups",
}

// login is the permit to open a session.
const login = "login"

// need is a permit that a request takes, and the object it takes it on, followed by
// the objects that this one is in. Without objects only a role that holds everywhere
// has it.
type need struct {
	permit string
	on     []string
}

// authorize rejects requests for which a user has no permission.
func (s *Server) authorize(u *user, rt *route, q *request) error {
	if q.method == http.MethodGet || q.method == http.MethodOptions {
		return s.mayRead(u, rt, q)
	}
	if u.all {
		return nil
	}
	for _, n := range s.needs(rt, q) {
		if !s.holds(u, n) {
			return refused(http.StatusForbidden, "User is not authorized to perform this action.")
		}
	}
	return nil
}

// holds reports whether a role of a user has a permit on an object, or on one that
// it is in.
func (s *Server) holds(u *user, n need) bool {
	return slices.ContainsFunc(s.permissionsOf(u), func(p *permission) bool {
		return slices.Contains(p.role.permits, n.permit) && (p.on == "" || slices.Contains(n.on, p.on))
	})
}

// mayLogin reports whether a user has a role that lets it in.
func (s *Server) mayLogin(u *user) bool {
	return u.all || slices.ContainsFunc(s.permissionsOf(u), func(p *permission) bool { return slices.Contains(p.role.permits, login) })
}

// give gives a user the roles that it has from the start.
func (s *Server) give(u *user) error {
	if u.all {
		s.grant(u, superUser, "")
		return nil
	}
	newRole := func(name string, permits []string) *role {
		r := &role{meta: newMeta(name + " of " + u.Name), administrative: !u.UserRole, permits: slices.Clone(permits)}
		s.roles.add(r)
		return r
	}
	if len(u.SystemPermits) > 0 {
		s.grant(u, newRole("system role", u.SystemPermits).id, "")
	}
	if len(u.Permits) == 0 {
		return nil
	}
	u.role = newRole("role", u.Permits)
	if len(u.On) == 0 {
		s.grant(u, u.role.id, "")
	}
	for _, on := range u.On {
		kind, name, _ := strings.Cut(on, "/")
		var o identified
		err := fmt.Errorf("no kind %q", kind)
		switch kind {
		case "data_center":
			o, err = named(&s.dataCenters, name)
		case "cluster":
			o, err = named(&s.clusters, name)
		case "storage_domain":
			o, err = named(&s.domains, name)
		case "template":
			o, err = named(&s.templates, name)
		}
		if err != nil {
			return fmt.Errorf("user %s: finding %s: %w", u.Name, on, err)
		}
		s.grant(u, u.role.id, o.ident(), ref(kind, strings.ReplaceAll(kind, "_", "")+"s", o.ident()))
	}
	return nil
}

// grant adds a permission.
func (s *Server) grant(u *user, role, on string, more ...*elem) {
	r, _ := s.roles.get(role)
	body := el("permission", ref("role", "roles", role), ref("user", "users", u.id)).add(more...)
	s.permissions.add(&permission{meta: newMeta(""), on: on, role: r, user: u.id, body: body})
}

// needs returns all that a request takes.
func (s *Server) needs(rt *route, q *request) []need {
	name := rt.method + " " + rt.path
	needs := []need{{permits[name], s.placeOf(rt, q)}}
	switch name {
	case "POST vms":
		needs = s.needsOfVM(q)
	case "POST vms/{}/diskattachments":
		if id := q.body.get("disk").id() + q.body.id(); id != "" {
			needs = append(needs, need{"attach_disk", s.inDisk(id)})
		} else {
			needs = append(needs, s.needsOfDisk(q.body.get("disk/storage_domains/storage_domain").id())...)
		}
	case "DELETE vms/{}/diskattachments/{}":
		permit := "attach_disk"
		if q.param("detach_only") == "false" {
			permit = "delete_disk"
		}
		needs = append(needs, need{permit, s.inDisk(q.args[1])})
	case "DELETE vms/{}":
		if v, ok := s.vms.get(q.args[0]); ok && q.param("detach_only") != "true" {
			for _, a := range v.attachments {
				needs = append(needs, need{"delete_disk", s.inDisk(a.disk)})
			}
		}
	}
	if name == "POST vms" || name == "PUT vms/{}" {
		if len(q.body.all("custom_properties/custom_property")) > 0 {
			needs = append(needs, need{"change_vm_custom_properties", needs[0].on})
		}
		if q.body.get("placement_policy") != nil || q.body.get("cpu/cpu_tune") != nil {
			needs = append(needs, need{"edit_admin_vm_properties", needs[0].on})
		}
	}
	return needs
}

// needsOfVM returns the permissions that the creation of a VM requires: on its
// cluster, on its template, and for its disks.
func (s *Server) needsOfVM(q *request) []need {
	needs := []need{{permit: "create_vm"}}
	if cl, err := s.clusterOf(q.body); err == nil {
		needs[0].on = s.inCluster(cl.id)
	}
	t, err := s.templateOf(q.body)
	if err != nil {
		return needs
	}
	needs = append(needs, need{"create_vm", s.inTemplate(t)})
	var domains []string
	for _, a := range q.body.all("disk_attachments/disk_attachment") {
		for _, d := range a.all("disk/storage_domains/storage_domain") {
			domains = append(domains, d.id())
		}
	}
	for _, a := range t.attachments {
		if d, ok := s.disks.get(a.disk); ok && len(domains) == 0 {
			domains = d.domains[:1]
		}
	}
	for _, domain := range domains {
		needs = append(needs, s.needsOfDisk(domain)...)
	}
	return needs
}

// needsOfDisk returns the permissions that the creation of a disk on a storage
// domain requires. The role DiskProfileUser is not granted to everyone here.
func (s *Server) needsOfDisk(domain string) []need {
	at := s.inDomain(domain)
	return []need{{"create_disk", at}, {"attach_disk_profile", at}}
}

// placeOf returns the object that a request is about, and those that it is in.
func (s *Server) placeOf(rt *route, q *request) []string {
	if len(q.args) == 0 || permits[rt.method+" "+rt.path] == "tag_management" {
		return nil
	}
	id := q.args[0]
	switch first(rt.parts) {
	case "vms":
		if v, ok := s.vms.get(id); ok {
			return s.inCluster(v.cluster)
		}
	case "clusters":
		return s.inCluster(id)
	case "disks":
		return s.inDisk(id)
	case "storagedomains":
		return s.inDomain(id)
	case "templates":
		if t, ok := s.templates.get(id); ok {
			return s.inTemplate(t)
		}
	}
	return nil
}

func (s *Server) inCluster(id string) []string { return []string{id, s.dataCenterOf(id)} }

func (s *Server) inTemplate(t *template) []string { return []string{t.id, s.dataCenterOf(t.cluster)} }

func (s *Server) inDomain(id string) []string {
	if d, ok := s.domains.get(id); ok {
		return []string{id, d.dataCenter}
	}
	return nil
}

func (s *Server) inDisk(id string) (on []string) {
	if d, ok := s.disks.get(id); ok {
		for _, domain := range d.domains {
			on = append(on, s.inDomain(domain)...)
		}
	}
	return on
}

// mayRead rejects requests for objects that a user without an administrative
// role cannot see.
func (s *Server) mayRead(u *user, rt *route, q *request) error {
	administrative := slices.ContainsFunc(s.permissionsOf(u), func(p *permission) bool { return p.role.administrative })
	if !administrative && !q.filter && rt.path != "" {
		return refused(http.StatusForbidden, "query execution failed due to insufficient permissions.")
	}
	return nil
}

// findUser finds who has a name and a password.
func (s *Server) findUser(name, password string) *user {
	for _, u := range s.users {
		if u.Name == name && u.Password == password {
			return u
		}
	}
	return nil
}

// SetPermits sets the permissions of a user other than the administrator.
// Existing sessions use the new permissions.
func (s *Server) SetPermits(name string, permits []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.users {
		if u.Name == name && u.role != nil {
			u.role.permits = slices.Clone(permits)
			return nil
		}
	}
	return fmt.Errorf("no user %q with permits", name)
}

// SetPassword changes a user's password. Sessions go on, as with an engine
// whose users are kept elsewhere.
func (s *Server) SetPassword(name, password string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.users {
		if u.Name == name {
			u.Password = password
			return nil
		}
	}
	return fmt.Errorf("no user %q", name)
}
