package pvesim

import (
	"maps"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/access"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
)

// Defaults of Options.
const (
	// DefaultUsername is a user with all privileges who is not root.
	DefaultUsername = "capi@pve"
	DefaultPassword = "nova-Test-1"
	// DefaultToken is an API token of that user, with all its privileges.
	DefaultToken       = "capi@pve!nova"
	DefaultTokenSecret = "0f6a3c1e-5d7b-4a52-9d0e-6d5b6f4e2a10"
)

// Names of the times of the server, beside those of the cluster.
const (
	// TimeUnauthorized is the delay of responses with the status 401: 3 s on a
	// real node.
	TimeUnauthorized = "unauthorized"
	// TimeTicket is how long a ticket is valid.
	TimeTicket = "ticket"
)

// Options are the settings of a simulated cluster. The zero value starts a
// complete one.
type Options struct {
	// Listen are addresses for the nodes, in order; 127.0.0.1 and a free port for
	// nodes without one.
	Listen []string
	// Names are further names and addresses that the certificate is valid for.
	Names []string
	// CertDir keeps ca.crt, tls.crt and tls.key over a restart. They are in memory,
	// if empty.
	CertDir string
	// Username and Password are those of a user with all privileges.
	Username, Password string
	// TokenSecret is the secret of the token "nova" of that user.
	TokenSecret string
	// Timings are added to DefaultTimings.
	Timings map[string]time.Duration
	// Guests boot when VMs are started. Without them a VM is only a state.
	Guests cluster.Guests
	// OnRequest is called with every request of the API before it is performed:
	// its method and its path with names for IDs, such as /nodes/{node}/status. It
	// may call the server.
	OnRequest func(method, path string)
	// ControlSocket is the path of a unix socket to control the server by.
	ControlSocket string
	// Inventory contains the objects at the start.
	Inventory cluster.Inventory
}

// DefaultTimings are those of the server and of the cluster.
func DefaultTimings() map[string]time.Duration {
	timings := cluster.DefaultTimings()
	timings[TimeUnauthorized] = 200 * time.Millisecond
	timings[TimeTicket] = 2 * time.Hour
	return timings
}

// withDefaults sets the defaults of fields that are not set.
func (o Options) withDefaults() Options {
	orDefault(&o.Username, DefaultUsername)
	orDefault(&o.Password, DefaultPassword)
	orDefault(&o.TokenSecret, DefaultTokenSecret)
	timings := DefaultTimings()
	maps.Copy(timings, o.Timings)
	o.Timings = timings
	o.Inventory.Users = append([]access.User{
		{Name: access.Root, Password: o.Password},
		{Name: o.Username, Password: o.Password, Tokens: []access.Token{{ID: "nova", Secret: o.TokenSecret, Full: true}}},
	}, o.Inventory.Users...)
	o.Inventory.ACL = append([]access.Entry{{Path: "/", Subject: o.Username, Role: access.Administrator}}, o.Inventory.ACL...)
	return o
}

func orDefault(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}
