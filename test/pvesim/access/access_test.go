package access

import (
	"slices"
	"testing"
)

// pools are the pools by the ACL path of a member.
type pools map[string][]string

func (p pools) PoolsOf(path string) []string { return p[path] }

// The rules are those of PVE::AccessControl::roles and
// PVE::RPCEnvironment::permissions (pve-access-control).
func TestPermissions(t *testing.T) {
	c, err := New(
		[]User{
			{Name: "a@pve", Groups: []string{"g"}, Tokens: []Token{{ID: "full", Secret: "x", Full: true}, {ID: "less", Secret: "y"}}},
			{Name: "b@pve"},
		},
		map[string][]string{"R1": {"VM.Audit"}, "R2": {"VM.PowerMgmt"}},
		[]Entry{
			{Path: "/vms", Subject: "@g", Role: "R1"},
			{Path: "/vms/100", Subject: "a@pve", Role: "R2"},
			{Path: "/vms/102", Subject: "a@pve", Role: NoAccess},
			{Path: "/nodes", Subject: "a@pve", Role: "PVEAuditor", NoPropagation: true},
			{Path: "/vms", Subject: "a@pve!less", Role: "PVEVMAdmin"},
			{Path: "/pool/p", Subject: "b@pve", Role: "R2"},
			{Path: "/pool/p", Subject: "a@pve", Role: "R2"},
		},
		pools{"/vms/101": {"p"}, "/vms/102": {"p"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, subject, path string
		want                []string
	}{
		{"root", Root, "/vms/100", Privileges()},
		{"group, propagated", "a@pve", "/vms/103", []string{"VM.Audit"}},
		{"a deeper entry replaces those above", "a@pve", "/vms/100", []string{"VM.PowerMgmt"}},
		{"pool, added", "a@pve", "/vms/101", []string{"VM.Audit", "VM.PowerMgmt"}},
		{"no access, also not by the pool", "a@pve", "/vms/102", nil},
		{"without propagation, on the path", "a@pve", "/nodes", []string{"Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit", "VM.Audit", "VM.GuestAgent.Audit"}},
		{"without propagation, below", "a@pve", "/nodes/n", nil},
		{"pool only", "b@pve", "/vms/101", []string{"VM.PowerMgmt"}},
		{"not in the pool", "b@pve", "/vms/100", nil},
		{"token with all privileges", "a@pve!full", "/vms/100", []string{"VM.PowerMgmt"}},
		{"token with those of both", "a@pve!less", "/vms/103", []string{"VM.Audit"}},
		{"no such token", "a@pve!gone", "/vms/103", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := []string{}
			for name := range c.Permissions(test.subject, test.path) {
				got = append(got, name)
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if c.Require("a@pve", "/vms/100", "VM.PowerMgmt", "VM.Clone") == nil || c.RequireAny("a@pve", "/vms/100", "VM.Clone", "VM.PowerMgmt") != nil {
		t.Error("all or any of the privileges were confused")
	}
	if _, ok := c.Authenticate("a@pve!less=y"); !ok {
		t.Error("a token was rejected")
	}
	if _, ok := c.Authenticate("a@pve!less=x"); ok {
		t.Error("the secret of another token was accepted")
	}
	for _, entry := range []Entry{
		{Path: "/vm/100", Subject: "a@pve", Role: "R1"}, {Path: "/vms/100", Subject: "c@pve", Role: "R1"}, {Path: "/vms/100", Subject: "a@pve", Role: "R3"},
	} {
		if c.Grant(entry) == nil {
			t.Errorf("%v was accepted", entry)
		}
	}
}
