package endpoints

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"testing"
)

func TestPolicy(t *testing.T) {
	type rules struct {
		denied, allowed []string
		management      string
	}
	for name, tc := range map[string]struct {
		rules   rules
		address string
		allows  bool
	}{
		"An address of a workload cluster":     {rules{}, "10.0.0.10", true},
		"Loopback":                             {rules{}, "127.0.0.1", false},
		"All of loopback":                      {rules{}, "127.8.9.1", false},
		"Loopback of IPv6":                     {rules{}, "::1", false},
		"Loopback as IPv6":                     {rules{}, "::ffff:127.0.0.1", false},
		"Loopback behind NAT64":                {rules{}, "64:ff9b::7f00:1", false},
		"Loopback behind 6to4":                 {rules{}, "2002:7f00:1::", false},
		"Unspecified":                          {rules{}, "0.0.0.0", false},
		"Unspecified of IPv6":                  {rules{}, "::", false},
		"Metadata of a cloud":                  {rules{}, "169.254.169.254", false},
		"Link-local of IPv6":                   {rules{}, "fe80::1%eth0", false},
		"A group":                              {rules{}, "224.0.0.1", false},
		"The management API":                   {rules{management: "10.96.0.1"}, "10.96.0.1", false},
		"Beside the management API":            {rules{management: "10.96.0.1"}, "10.96.0.2", true},
		"The management API of IPv6":           {rules{management: "fd00::1"}, "fd00::1", false},
		"The management API by name":           {rules{management: "kubernetes.default.svc"}, "10.96.0.1", true},
		"The management API, allowed":          {rules{management: "10.96.0.1", allowed: []string{"10.96.0.1"}}, "10.96.0.1", true},
		"Denied":                               {rules{denied: []string{"10.1.0.0/16"}}, "10.1.2.3", false},
		"Denied with an exception":             {rules{denied: []string{"10.1.0.0/16"}, allowed: []string{"10.1.2.0/24"}}, "10.1.2.3", true},
		"Everything but one range":             {rules{denied: []string{"0.0.0.0/0", "::/0"}, allowed: []string{"10.1.2.0/24"}}, "10.1.3.1", false},
		"The one range":                        {rules{denied: []string{"0.0.0.0/0", "::/0"}, allowed: []string{"10.1.2.0/24"}}, "10.1.2.1", true},
		"An exception of IPv4 written as IPv6": {rules{allowed: []string{"127.0.0.0/8"}}, "::ffff:127.0.0.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(tc.rules.denied, tc.rules.allowed, tc.rules.management)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Allows(netip.MustParseAddr(tc.address)); got != tc.allows {
				t.Errorf("%s: allowed %t, want %t", tc.address, got, tc.allows)
			}
		})
	}
}

func TestPolicyRefusesNonsense(t *testing.T) {
	for _, text := range []string{"", "10.0.0.0/33", "example.com", "10.0.0.1:6443"} {
		if _, err := New([]string{text}, nil, ""); err == nil {
			t.Errorf("%q is no range of addresses and was taken for one", text)
		}
	}
}

func TestDialRefusesDeniedAddresses(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	t.Cleanup(func() { current.Store(nil) })

	p, err := New(nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	Set(p)
	dialer := net.Dialer{Control: ControlFor(&url.URL{Scheme: "https", Host: "example.com"})}
	for _, host := range []string{"127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1"} {
		conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, ErrDenied) {
			t.Errorf("%s: want ErrDenied, got %v", host, err)
		}
		if err := CheckHost(host); !errors.Is(err, ErrDenied) {
			t.Errorf("checking %s: want ErrDenied, got %v", host, err)
		}
	}

	p.Allowed = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	Set(p)
	conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("an allowed address: %v", err)
	}
	_ = conn.Close()
	if err := CheckHost("localhost"); err != nil {
		t.Errorf("an allowed name: %v", err)
	}
}
