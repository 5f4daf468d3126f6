package ovirtsim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// permitIDs are the IDs of permits, which roles are made of.
var permitIDs = map[string]int{
	"create_vm": 1, "delete_vm": 2, "edit_vm_properties": 3, "migrate_vm": 6, "configure_vm_network": 9, "configure_vm_storage": 10,
	"manipulate_vm_snapshots": 12, "change_vm_custom_properties": 14, "edit_admin_vm_properties": 15, "create_instance": 16,
	"reboot_vm": 17, "stop_vm": 18, "shut_down_vm": 19, "hibernate_vm": 21, "run_vm": 22, "reset_vm": 23, "manipulate_host": 103,
	"create_template": 200, "edit_template_properties": 201, "delete_template": 202, "create_user": 500,
	"create_disk": 1100, "attach_disk": 1101, "edit_disk_properties": 1102, "configure_disk_storage": 1103, "delete_disk": 1104,
	"configure_network_vnic_profile": 1203, "create_network_vnic_profile": 1204, "delete_network_vnic_profile": 1205,
	login: 1300, "tag_management": 1301, "manipulate_affinity_groups": 1550, "attach_disk_profile": 1563,
}

// adminPermits are those that only an administrative role can have.
var adminPermits = []string{
	"change_vm_custom_properties", "edit_admin_vm_properties", "manipulate_host", "create_user", "configure_network_vnic_profile",
	"create_network_vnic_profile", "delete_network_vnic_profile", "tag_management", "manipulate_affinity_groups",
}

// superUser is the ID of the administrator's role.
const superUser = "00000000-0000-0000-0000-000000000001"

// role is a set of permits.
type role struct {
	meta

	administrative bool
	permits        []string
}

// permission gives a role on an object to a user, or to a group, of which the
// simulator knows no members.
type permission struct {
	meta

	// on is the ID of the object. If it is empty, the permission is for the whole
	// system.
	on   string
	role *role
	user string
	body *elem
}

func (p *permission) elem() *elem {
	return el("permission").at(apiPath+"/permissions/"+p.id, p.id).add(p.body.kids...)
}

func (s *Server) roleRoutes() map[string]handler {
	routes := map[string]handler{
		"GET domains":              s.listDomains,
		"GET users":                s.listUsers,
		"POST users":               s.addUser,
		"GET users/{}/permissions": s.listPermissionsOf,
		"GET roles":                func(q *request) (*elem, error) { return list(q, "roles", s.roles.items, roleElem) },
		"POST roles":               s.addRole,
		"GET roles/{}":             one(&s.roles, roleElem),
		"GET roles/{}/permits":     s.listPermits,
		"GET permissions": func(q *request) (*elem, error) {
			return list(q, "permissions", s.permissions.where(func(p *permission) bool { return p.on == "" }), (*permission).elem)
		},
		"POST permissions": func(q *request) (*elem, error) { return s.addPermission(q, "") },
	}
	for _, collection := range []string{"vms", "templates", "disks", "clusters", "datacenters", "hosts", "networks", "storagedomains", "vnicprofiles"} {
		routes["GET "+collection+"/{}/permissions"] = func(q *request) (*elem, error) {
			return list(q, "permissions", s.permissions.where(func(p *permission) bool { return p.on == q.args[0] }), (*permission).elem)
		}
		routes["POST "+collection+"/{}/permissions"] = func(q *request) (*elem, error) {
			rt, args, _ := s.find(http.MethodGet, []string{collection, q.args[0]})
			if _, err := rt.handle(&request{method: http.MethodGet, args: args, user: q.user, internal: true}); err != nil {
				return nil, err
			}
			return s.addPermission(q, q.args[0])
		}
		routes["DELETE "+collection+"/{}/permissions/{}"] = s.removePermission
	}
	return routes
}

func roleElem(r *role) *elem {
	href := apiPath + "/roles/" + r.id
	return el("role").at(href, r.id).add(r.elems()...).add(links(href, "permits")...).
		add(leaf("administrative", r.administrative), leaf("mutable", r.id != superUser))
}

// addSuperUser adds the role that has all permits.
func (s *Server) addSuperUser() {
	s.roles.add(&role{meta: meta{id: superUser, name: "SuperUser"}, administrative: true, permits: slices.Sorted(maps.Keys(permitIDs))})
}

// addRole creates a role of permits, which are named by their IDs.
func (s *Server) addRole(q *request) (*elem, error) {
	r := &role{meta: newMeta("")}
	r.apply(q.body)
	if err := q.body.setBool("administrative", &r.administrative); err != nil {
		return nil, err
	}
	for _, permit := range q.body.all("permits/permit") {
		name := ""
		for known, id := range permitIDs {
			if strconv.Itoa(id) == permit.id() {
				name = known
			}
		}
		if name == "" {
			return nil, badValue("permit", permit.id())
		}
		r.permits = append(r.permits, name)
	}
	switch {
	case r.name == "" || len(r.permits) == 0:
		return nil, incomplete("Role", "name, permits.id")
	case slices.ContainsFunc(s.roles.items, func(other *role) bool { return other.name == r.name }):
		return nil, nameTaken("add", "Role")
	case !r.administrative && slices.ContainsFunc(r.permits, func(p string) bool { return slices.Contains(adminPermits, p) }):
		return nil, invalid("Cannot add Admin permits to a Role of the type User.")
	}
	s.roles.add(r)
	return roleElem(r), nil
}

// listPermits lists the permissions of a role.
func (s *Server) listPermits(q *request) (*elem, error) {
	r, ok := s.roles.get(q.args[0])
	if !ok {
		return nil, notFound()
	}
	out := el("permits")
	for _, name := range r.permits {
		id := strconv.Itoa(permitIDs[name])
		out.add(el("permit").at(apiPath+"/roles/"+r.id+"/permits/"+id, id).
			add(leaf("name", name), leaf("administrative", slices.Contains(adminPermits, name))))
	}
	return out, nil
}

func userElem(u *user) *elem {
	principal, profile, _ := cutLast(u.Name)
	domain := profile + "-authz"
	return el("user").at(apiPath+"/users/"+u.id, u.id).add(
		leaf("name", principal), leaf("user_name", principal+"@"+domain), leaf("principal", principal), el("domain", leaf("name", domain)))
}

// cutLast cuts a login name before the profile.
func cutLast(name string) (principal, profile string, found bool) {
	i := strings.LastIndexByte(name, '@')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// listDomains lists the directories that users are in.
func (s *Server) listDomains(*request) (*elem, error) {
	out := el("domains")
	seen := map[string]bool{}
	for _, u := range s.users {
		name := userElem(u).str("domain/name")
		if !seen[name] {
			seen[name] = true
			id := fmt.Sprintf("%X", name)
			out.add(el("domain").at(apiPath+"/domains/"+id, id).add(leaf("name", name)))
		}
	}
	return out, nil
}

func (s *Server) listUsers(*request) (*elem, error) {
	out := el("users")
	for _, u := range s.users {
		if u.known {
			out.add(userElem(u))
		}
	}
	return out, nil
}

// addUser adds an account of the directory to the users of the engine. It makes
// no account: that is for the directory. The domain is not the profile of the
// login name but its directory.
func (s *Server) addUser(q *request) (*elem, error) {
	for _, u := range s.users {
		shown := userElem(u)
		if q.body.str("user_name") == shown.str("user_name") && q.body.str("domain/name") == shown.str("domain/name") &&
			q.body.str("principal") == shown.str("principal") {
			u.known = true
			return shown, nil
		}
	}
	return nil, invalid("No such user: %s in domain %s", q.body.str("user_name"), q.body.str("domain/name"))
}

// listPermissionsOf lists the permissions of a user.
func (s *Server) listPermissionsOf(q *request) (*elem, error) {
	for _, u := range s.users {
		if u.id == q.args[0] && u.known {
			return list(q, "permissions", s.permissionsOf(u), (*permission).elem)
		}
	}
	return nil, notFound()
}

func (s *Server) permissionsOf(u *user) []*permission {
	return s.permissions.where(func(p *permission) bool { return p.user == u.id })
}

// addPermission gives a role on an object to a user or a group. Engines may ignore
// the name of a role, so the ID is required.
func (s *Server) addPermission(q *request, on string) (*elem, error) {
	r, ok := s.roles.get(q.body.get("role").id())
	id, group := q.body.get("user").id(), q.body.get("group").id()
	switch {
	case !ok:
		return nil, incomplete("Permission", "role.id")
	case id == "" && group == "":
		return nil, incomplete("Permission", "user|group.id")
	case id != "" && !slices.ContainsFunc(s.users, func(u *user) bool { return u.known && u.id == id }):
		return nil, missingEntity("User", id)
	}
	p := &permission{meta: newMeta(""), on: on, role: r, user: id, body: q.body}
	s.permissions.add(p)
	return p.elem(), nil
}

func (s *Server) removePermission(q *request) (*elem, error) {
	if _, ok := s.permissions.get(q.args[1]); !ok {
		return nil, notFound()
	}
	s.permissions.remove(q.args[1])
	return s.acted(q, "Removing Permission"), nil
}
