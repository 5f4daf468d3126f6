package sessions

import (
	"net"
	"net/netip"
	"strings"
	"sync"
)

// httpsPort is the default port of a server.
const httpsPort = "443"

// Canonical returns one spelling of a server for all spellings of it: lower
// case, without the final dot of a name and without the port of HTTPS. A name
// and its address remain two servers.
func Canonical(server string) string {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		host, port = strings.Trim(server, "[]"), httpsPort
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	address, err := netip.ParseAddr(host)
	if err == nil {
		host = address.Unmap().String()
	}
	port = strings.TrimLeft(port, "0")
	switch {
	case port != httpsPort && port != "":
		return net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		return "[" + host + "]"
	default:
		return host
	}
}

const (
	// maxLabels is the number of servers with their own metric series.
	maxLabels = 200
	// otherServers is the label of all further servers.
	otherServers = "other"
)

var (
	labelsMu sync.Mutex
	labels   = map[string]struct{}{}
)

// Label returns the label of a server in metrics. Customers choose the names of
// servers, and every series stays in memory until the process ends, so only the
// first servers have their own series.
func Label(server string) string {
	server = Canonical(server)
	labelsMu.Lock()
	defer labelsMu.Unlock()
	if _, known := labels[server]; !known {
		if len(labels) >= maxLabels {
			return otherServers
		}
		labels[server] = struct{}{}
	}
	return server
}
