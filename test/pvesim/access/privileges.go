package access

import (
	"maps"
	"slices"
)

// group are the privileges of a part of the API by the level of the builtin role
// that has them.
type group struct {
	name                     string
	root, admin, user, audit []string
}

// groups are the privileges of Proxmox VE 9.
var groups = []group{
	{
		name: "VM",
		admin: []string{
			"VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network", "VM.Config.HWType", "VM.Config.Options",
			"VM.Allocate", "VM.Clone", "VM.GuestAgent.Unrestricted", "VM.Migrate", "VM.Replicate", "VM.Snapshot", "VM.Snapshot.Rollback",
		},
		user: []string{
			"VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console", "VM.Backup", "VM.GuestAgent.FileRead",
			"VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.FileWrite", "VM.PowerMgmt",
		},
		audit: []string{"VM.Audit", "VM.GuestAgent.Audit"},
	},
	{
		name: "Sys",
		root: []string{"Sys.PowerMgmt", "Sys.Modify", "Sys.Incoming", "Sys.AccessNetwork"}, admin: []string{"Sys.Console", "Sys.Syslog"},
		audit: []string{"Sys.Audit"},
	},
	{
		name:  "Datastore",
		admin: []string{"Datastore.Allocate", "Datastore.AllocateTemplate"}, user: []string{"Datastore.AllocateSpace"},
		audit: []string{"Datastore.Audit"},
	},
	{name: "SDN", admin: []string{"SDN.Allocate", "SDN.Audit"}, user: []string{"SDN.Use"}, audit: []string{"SDN.Audit"}},
	{name: "User", root: []string{"Realm.Allocate"}, admin: []string{"User.Modify", "Group.Allocate", "Realm.AllocateUser"}},
	{name: "Pool", admin: []string{"Pool.Allocate"}, user: []string{"Pool.Audit"}, audit: []string{"Pool.Audit"}},
	{name: "Mapping", admin: []string{"Mapping.Modify"}, user: []string{"Mapping.Use"}, audit: []string{"Mapping.Audit"}},
	{name: "Permissions", root: []string{"Permissions.Modify"}},
}

// Names of builtin roles.
const (
	Administrator = "Administrator"
	NoAccess      = "NoAccess"
)

// builtinRoles returns the roles that every cluster has.
func builtinRoles() map[string][]string {
	roles := map[string][]string{NoAccess: {}, "PVETemplateUser": {"VM.Clone", "VM.Audit"}}
	for _, g := range groups {
		roles[Administrator] = slices.Concat(roles[Administrator], g.root, g.admin, g.user, g.audit)
		if g.name == "Permissions" {
			continue
		}
		admin := slices.Concat(g.admin, g.user, g.audit)
		roles["PVE"+g.name+"Admin"] = admin
		roles["PVEAdmin"] = append(roles["PVEAdmin"], admin...)
		if len(g.user) > 0 {
			roles["PVE"+g.name+"User"] = slices.Concat(g.user, g.audit)
		}
		roles["PVEAuditor"] = append(roles["PVEAuditor"], g.audit...)
	}
	roles["PVEAdmin"] = slices.DeleteFunc(roles["PVEAdmin"], func(name string) bool { return name == "Mapping.Modify" })
	return roles
}

// Privileges are all privileges.
func Privileges() []string {
	all := map[string]bool{}
	for _, name := range builtinRoles()[Administrator] {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}
