package endpoints

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

// ErrDenied is returned for an address that the policy denies. It does not
// contain the address of a name.
var ErrDenied = errors.New("the manager's flags deny connections to this address")

// Policy is a set of allowed addresses. Its zero value allows all.
type Policy struct {
	// Denied addresses are rejected unless they are also allowed.
	Denied []netip.Prefix
	// Allowed addresses are exceptions to Denied.
	Allowed []netip.Prefix
}

// Defaults are the addresses that no endpoint of a tenant has: loopback
// addresses, link-local addresses, where cloud providers serve credentials,
// unspecified addresses and multicast groups.
func Defaults() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/4"),
		netip.MustParsePrefix("255.255.255.255/32"),
		netip.MustParsePrefix("::/128"),
		netip.MustParsePrefix("::1/128"),
		netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("ff00::/8"),
	}
}

// New returns the policy for the two flags. In addition to Defaults it denies
// management, the address of the management cluster's API service; an empty
// value or a name adds nothing.
func New(denied, allowed []string, management string) (Policy, error) {
	policy := Policy{Denied: Defaults()}
	if address, err := netip.ParseAddr(management); err == nil {
		policy.Denied = append(policy.Denied, netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()))
	}
	for _, list := range []struct {
		texts []string
		into  *[]netip.Prefix
	}{{denied, &policy.Denied}, {allowed, &policy.Allowed}} {
		for _, text := range list.texts {
			prefix, err := parse(text)
			if err != nil {
				return Policy{}, err
			}
			*list.into = append(*list.into, prefix)
		}
	}
	return policy, nil
}

// parse parses a prefix, or an address as a prefix of one address.
func parse(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("reading range of addresses: %w", err)
	}
	return prefix.Masked(), nil
}

// Allows reports whether connections to address are allowed. An IPv4 address in
// IPv6 notation is treated as the IPv4 address, also with the prefixes of NAT64
// and 6to4.
func (p Policy) Allows(address netip.Addr) bool {
	for _, form := range forms(address) {
		contains := func(prefix netip.Prefix) bool { return prefix.Contains(form) }
		if slices.ContainsFunc(p.Denied, contains) && !slices.ContainsFunc(p.Allowed, contains) {
			return false
		}
	}
	return true
}

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

// forms are the addresses that a connection to address may lead to.
func forms(address netip.Addr) []netip.Addr {
	address = address.Unmap().WithZone("")
	found := []netip.Addr{address}
	raw := address.As16()
	switch {
	case nat64.Contains(address):
		found = append(found, netip.AddrFrom4([4]byte(raw[12:16])))
	case sixTo4.Contains(address):
		found = append(found, netip.AddrFrom4([4]byte(raw[2:6])))
	}
	return found
}

var current atomic.Pointer[Policy]

// Set makes p the policy of this process.
func Set(p Policy) { current.Store(&p) }

// allows checks the policy of this process.
func allows(address netip.Addr) bool {
	p := current.Load()
	return p == nil || p.Allows(address)
}

// CheckHost returns ErrDenied for a host, without port, that is a denied
// address or a name of this host. It does not resolve names: Control checks
// their addresses.
func CheckHost(host string) error {
	host = strings.Trim(host, "[]")
	if address, err := netip.ParseAddr(host); err == nil {
		if !allows(address) {
			return ErrDenied
		}
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if (name == "localhost" || strings.HasSuffix(name, ".localhost")) && !allows(netip.MustParseAddr("127.0.0.1")) {
		return ErrDenied
	}
	return nil
}

// Control returns ErrDenied for a denied address. A net.Dialer calls it with the
// resolved address before each connection is made.
func Control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !allows(at.Addr()) {
		return ErrDenied
	}
	return nil
}

// ControlFor returns Control for a server, or nil if the environment sets a
// proxy for it: the dialed address is then that of the proxy, which the
// administrator chose.
func ControlFor(server *url.URL) func(network, address string, c syscall.RawConn) error {
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: server}); err == nil && proxy != nil {
		return nil
	}
	return Control
}
