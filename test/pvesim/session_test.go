package pvesim

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// session is a client with a ticket.
type session struct {
	*client

	ticket, csrf string
}

func (c *client) login(user, password string) session {
	c.t.Helper()
	data, _ := c.as("").ok(post, "/access/ticket", "username="+user, "password="+password).(map[string]any)
	ticket, _ := data["ticket"].(string)
	csrf, _ := data["CSRFPreventionToken"].(string)
	return session{c.as(""), ticket, csrf}
}

// call sends a request with a cookie, and with the CSRF token if there is one.
func (s session) call(method, path string) response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URLs[0]+apiPath+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Cookie", "PVEAuthCookie="+url.QueryEscape(s.ticket))
	if s.csrf != "" {
		req.Header.Set(csrfHeader, s.csrf)
	}
	res, err := s.roundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return res
}

// The reason phrases are those of PVE::HTTPServer (pve-manager) and
// PVE::APIServer::AnyEvent (pve-http-server).
func TestSessions(t *testing.T) {
	timings := quick()
	timings[TimeUnauthorized] = 60 * time.Millisecond
	c := start(t, Options{Timings: timings})
	nobody := c.as("")
	nobody.refused(401, "No ticket", get, "/version")
	if res := nobody.do(get, "/version"); res.Message != "" || res.Reason != "No ticket" {
		t.Errorf("got %+v", res)
	}
	c.as("PVEAPIToken="+DefaultToken+"=wrong").refused(401, "Authentication failed!", get, "/version")
	began := time.Now()
	nobody.refused(401, "authentication failure", post, "/access/ticket", "username=capi@pve", "password=wrong")
	if time.Since(began) < 60*time.Millisecond {
		t.Error("the response for a wrong password was not delayed")
	}
	if res := nobody.upload("/nodes/pve1/storage/local/upload", [][2]string{{"content", "iso"}}, "a.iso", make([]byte, 4<<20)); res.Status != 401 {
		t.Errorf("got %+v", res)
	}
	nobody.refused(400, "username: property is missing and it is not optional", post, "/access/ticket", "password=x")

	s := c.login(DefaultUsername, DefaultPassword)
	if res := s.call(get, "/version"); res.Status != 200 {
		t.Errorf("got %+v", res)
	}
	if res := s.call(post, "/nodes/pve1/qemu/9000/status/start"); res.Status != 200 {
		t.Errorf("got %+v", res)
	}
	csrf := s.csrf
	s.csrf = ""
	if res := s.call(post, "/nodes/pve1/qemu/9000/status/start"); res.Status != 401 || res.Reason != "Permission denied - invalid csrf token" {
		t.Errorf("got %+v", res)
	}
	s.csrf = csrf
	renewed := c.login(DefaultUsername, s.ticket)
	if res := renewed.call(get, "/version"); res.Status != 200 {
		t.Errorf("a ticket did not renew the login: %+v", res)
	}
	s.ticket = strings.Replace(s.ticket, "capi@pve", "root@pam", 1)
	if res := s.call(get, "/version"); res.Status != 401 {
		t.Errorf("a changed ticket was accepted: %+v", res)
	}
	c.server.ExpireTickets()
	if res := renewed.call(get, "/version"); res.Status != 401 {
		t.Errorf("an expired ticket was accepted: %+v", res)
	}
}

// tenant is a user with privileges on a pool, and tokens.
func tenant() Options {
	return Options{Inventory: cluster.Inventory{
		Pools: []string{"acme", "globex"},
		Users: []access.User{{Name: "acme@pve", Password: "x", Tokens: []access.Token{{ID: "full", Secret: "s1", Full: true}, {ID: "less", Secret: "s2"}}}},
		Roles: map[string][]string{"Cloner": {"VM.Clone", "VM.Audit"}, "Space": {"Datastore.AllocateSpace"}},
		ACL: []access.Entry{
			{Path: "/pool/acme", Subject: "acme@pve", Role: "PVEVMAdmin"},
			{Path: "/vms/9000", Subject: "acme@pve", Role: "Cloner"},
			{Path: "/storage/shared", Subject: "acme@pve", Role: "Space"},
			{Path: "/sdn/zones/localnetwork/vmbr0", Subject: "acme@pve", Role: "PVESDNUser"},
			{Path: "/vms/9000", Subject: "acme@pve!less", Role: "Cloner"},
		},
	}}
}

func TestPermissions(t *testing.T) {
	c := start(t, tenant())
	full, less := c.as("PVEAPIToken=acme@pve!full=s1"), c.as("PVEAPIToken=acme@pve!less=s2")
	const clone = "/nodes/pve1/qemu/9000/clone"
	full.refused(403, "Permission check failed", post, clone, "newid=100")
	full.refused(403, "Permission check failed", post, clone, "newid=100", "pool=globex")
	full.task(post, clone, "newid=100", "pool=acme", "name=a")
	c.task(post, clone, "newid=101", "name=other")
	less.refused(403, "Permission check failed", post, clone, "newid=102", "pool=acme")
	less.ok(get, "/nodes/pve1/qemu/9000/config")

	full.task(post, "/nodes/pve1/qemu/100/config", "cores=4")
	full.refused(403, "/vms/101, VM.PowerMgmt", post, "/nodes/pve1/qemu/101/status/start")
	full.refused(403, "/storage/local-lvm, Datastore.AllocateSpace", post, "/nodes/pve1/qemu/100/config", "scsi1=local-lvm:1")
	full.refused(403, "/sdn/zones/localnetwork/vmbr1, SDN.Use", post, "/nodes/pve1/qemu/100/config", "net0=virtio,bridge=vmbr1")
	full.task(post, "/nodes/pve1/qemu/100/config", "net0=virtio,bridge=vmbr0,tag=7")
	full.refused(500, "only root can set 'args' config", post, "/nodes/pve1/qemu/100/config", "args=-S")
	full.refused(400, "skiplock: Only root may use this option.", post, "/nodes/pve1/qemu/100/status/start", "skiplock=1")
	full.refused(403, "/, Sys.Audit", get, "/cluster/status")
	full.refused(403, "/storage/local, Datastore.AllocateTemplate", post, "/nodes/pve1/storage/local/upload")
	list, _ := full.ok(get, "/cluster/resources", "type=vm").([]any)
	if len(list) != 2 {
		t.Errorf("the user sees %v", list)
	}
	c.task(del, "/nodes/pve1/qemu/101")
}
