package ports_test

import (
	"net"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/test/ports"
)

// No process listens on a port between two calls, and nevertheless no port is
// returned twice.
func TestFreeReturnsNoPortTwice(t *testing.T) {
	seen := map[string]bool{}
	for range 2000 {
		address, err := ports.FreeAddress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen[address] {
			t.Fatalf("%s was returned twice", address)
		}
		seen[address] = true
	}
}

func TestFreeCanBeListenedOn(t *testing.T) {
	address, err := ports.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
