package ovirtsim

import (
	"fmt"
	"strings"
)

// macPoolID names the engine's default pool.
const macPoolID = "58ca604b-017d-0374-0220-00000000014e"

// defaultMACs is how many addresses the default pool of an engine has.
const defaultMACs = 1 << 16

// macPool allocates the addresses of network interfaces. A released address is
// reused only after all others have been used.
type macPool struct {
	size, next int
	lent       map[int]bool
}

func macAt(n int) string {
	return fmt.Sprintf("56:6f:1a:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
}

// take lends an address; none, if none is left.
func (p *macPool) take() (string, bool) {
	for range p.size {
		n := p.next
		p.next = (p.next + 1) % p.size
		if !p.lent[n] {
			p.lent[n] = true
			return macAt(n), true
		}
	}
	return "", false
}

// number is an address's place in the pool, if it is in it.
func (p *macPool) number(mac string) (int, bool) {
	var a, b, c int
	if _, err := fmt.Sscanf(strings.ToLower(mac), "56:6f:1a:%02x:%02x:%02x", &a, &b, &c); err != nil {
		return 0, false
	}
	n := a<<16 | b<<8 | c
	return n, n < p.size
}

// claim allocates the address that a request sets for a network interface.
func (p *macPool) claim(mac string) {
	if n, ok := p.number(mac); ok {
		p.lent[n] = true
	}
}

// release gives an address back.
func (p *macPool) release(mac string) {
	if n, ok := p.number(mac); ok {
		delete(p.lent, n)
	}
}

// newMAC takes an address from the pool.
func (s *Server) newMAC(action, kind string) (string, error) {
	mac, ok := s.macs.take()
	if !ok {
		return "", conflict("Cannot %s %s. Not enough MAC addresses left in MAC Address Pool.", action, kind)
	}
	return mac, nil
}

func (s *Server) macPoolElem() *elem {
	e := el("mac_pool").at(apiPath+"/macpools/"+macPoolID, macPoolID)
	return e.add(leaf("name", "Default"), leaf("description", "Default MAC pool"), leaf("allow_duplicates", false), leaf("default_pool", true),
		el("ranges", el("range", leaf("from", macAt(0)), leaf("to", macAt(s.macs.size-1)))))
}
