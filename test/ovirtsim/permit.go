package ovirtsim

import (
	"fmt"
	"net/http"
	"slices"
)

// UserSpec is somebody beside the administrator.
type UserSpec struct {
	Name     string `json:"name"`
	Password string `json:"password"`
	// Permits are what the user's role holds, on everything, by the engine's
	// names such as create_vm. A role without any only reads.
	Permits []string `json:"permits,omitempty"`
}

// user is somebody who is let in.
type user struct {
	UserSpec

	id string
	// all is set for the administrator, who needs no permits.
	all bool
}

// permits are what it takes to write, by route. Whatever is not here takes the
// administrator.
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

// authorize refuses what a user has no permit for.
func (u *user) authorize(rt *route, q *request) error {
	if q.method == http.MethodGet || q.method == http.MethodOptions || u.all {
		return nil
	}
	needed := []string{permits[rt.method+" "+rt.path]}
	// A disk that a body only describes is made first, and some properties are
	// for administrators.
	switch needed[0] {
	case "configure_vm_storage":
		if rt.method == http.MethodPost {
			needed = append(needed, "attach_disk")
			if q.body.get("disk").id()+q.body.id() == "" {
				needed[1] = "create_disk"
			}
		}
	case "create_vm", "edit_vm_properties":
		if len(q.body.all("custom_properties/custom_property")) > 0 {
			needed = append(needed, "change_vm_custom_properties")
		}
		if q.body.get("placement_policy") != nil || q.body.get("cpu/cpu_tune") != nil {
			needed = append(needed, "edit_admin_vm_properties")
		}
	}
	for _, permit := range needed {
		if !slices.Contains(u.Permits, permit) {
			return refused(http.StatusForbidden, "User is not authorized to perform this action.")
		}
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

// SetPermits changes what a user beside the administrator may do. Sessions go
// on with the new permits.
func (s *Server) SetPermits(name string, permits []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.users {
		if u.Name == name && !u.all {
			u.Permits = slices.Clone(permits)
			return nil
		}
	}
	return fmt.Errorf("no user %q beside the administrator", name)
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

func (s *Server) listUsers(*request) (*elem, error) {
	out := el("users")
	for _, u := range s.users {
		e := el("user").at(apiPath+"/users/"+u.id, u.id)
		out.add(e.add(leaf("name", u.Name), leaf("user_name", u.Name), leaf("principal", u.Name)))
	}
	return out, nil
}
