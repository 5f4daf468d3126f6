package ovirtsim

import (
	"net/http"
	"testing"
)

// A client creates a role, adds a user from the directory, and assigns the role
// to it on an object. Then the user has the permissions of the role on this
// object only.
func TestRolesOfTheAPI(t *testing.T) {
	e := newEngine(t, func(o *Options) {
		o.Users = []UserSpec{{Name: "nova@internal", Password: "p", Account: true}}
		o.Inventory.DataCenters = []string{"east"}
		o.Inventory.Clusters = []ClusterSpec{{Name: "east", DataCenter: "east"}}
	})
	if status, _ := e.signIn("nova@internal", "p"); status != http.StatusBadRequest {
		t.Fatalf("an account of the directory is let in: %d", status)
	}
	const (
		permits = "<permits><permit id='1300'/><permit id='1'/><permit id='1100'/><permit id='1563'/></permits>"
		account = "<user><user_name>nova@internal-authz</user_name><principal>nova</principal><domain><name>internal-authz</name></domain></user>"
	)
	e.refuse("POST", "/roles", "<role><administrative>true</administrative>"+permits+"</role>", http.StatusBadRequest, "role.name")
	e.refuse("POST", "/roles", "<role><name>r</name></role>", http.StatusBadRequest, "permits.id")
	e.refuse("POST", "/roles", "<role><name>r</name><permits><permit id='4711'/></permits></role>", http.StatusBadRequest, "4711")
	e.refuse("POST", "/roles", "<role><name>r</name><permits><permit id='1550'/></permits></role>", http.StatusBadRequest, "Admin permits")
	e.refuse("POST", "/roles", "<role><name>SuperUser</name>"+permits+"</role>", http.StatusConflict, "already in use")
	role := e.must("POST", "/roles", "<role><name>makers</name><administrative>true</administrative>"+permits+"</role>").id()
	if got := e.must("GET", "/roles/"+role+"/permits", "").get("permit").str("name"); got != login {
		t.Errorf("the first permit is %s", got)
	}
	e.refuse("POST", "/users", "<user><user_name>nova@internal</user_name><principal>nova</principal><domain><name>internal</name></domain></user>",
		http.StatusBadRequest, "No such user")
	if got := e.must("GET", "/domains", "").get("domain"); got.str("name") != "internal-authz" || got.id() != "696E7465726E616C2D617574687A" {
		t.Errorf("the first domain is %s", text(got))
	}
	user := e.must("POST", "/users", account).id()
	place := "/datacenters/" + e.must("GET", "/datacenters?search=name%3DDefault", "").get("data_center").id() + "/permissions"
	e.refuse("POST", place, "<permission><role><name>makers</name></role><user id='"+user+"'/></permission>", http.StatusBadRequest, "role.id")
	e.refuse("POST", place, "<permission><role id='"+role+"'/></permission>", http.StatusBadRequest, "is required")
	e.refuse("POST", place, "<permission><role id='"+role+"'/><user id='"+newID()+"'/></permission>", http.StatusNotFound, "User")
	e.must("POST", place, "<permission><role id='"+role+"'/><user id='"+user+"'/></permission>")

	status, answer := e.signIn("nova@internal", "p")
	if status != http.StatusOK {
		t.Fatalf("login: %d %v", status, answer)
	}
	e.token = answer["access_token"]
	e.must("GET", "/vms", "")
	e.must("POST", "/vms", vmBody("a", ""))
	e.refuse("POST", "/roles", "<role><name>x</name>"+permits+"</role>", http.StatusForbidden, "not authorized")
	e.refuse("POST", "/vms", "<vm><name>b</name><cluster><name>east</name></cluster><template><name>Blank</name></template></vm>", http.StatusForbidden, "not authorized")
}
