package ovirtsim

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// BenchmarkListOfVMs measures the request that a driver with a thousand VMs
// sends every few seconds.
func BenchmarkListOfVMs(b *testing.B) {
	s := manyVMs(b, 1000)
	for _, query := range []string{"", "&follow=nics,reported_devices,tags,disk_attachments.disk"} {
		b.Run("changed "+query, func(b *testing.B) {
			for b.Loop() {
				if err := s.SetGuestHostName("vm-1", "vm-1"); err != nil {
					b.Fatal(err)
				}
				if status, _ := s.Do("GET", "/vms?search=tag%3Dmine"+query, ""); status != 200 {
					b.Fatal(status)
				}
			}
		})
		b.Run("same "+query, func(b *testing.B) {
			for b.Loop() {
				if status, _ := s.Do("GET", "/vms?search=tag%3Dmine"+query, ""); status != 200 {
					b.Fatal(status)
				}
			}
		})
	}
}

// manyVMs are VMs with a tag, a card, a disk and an address each.
func manyVMs(tb testing.TB, count int) *Server {
	tb.Helper()
	clock := NewManualClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s, err := Start(tb.Context(), Options{Clock: clock, Inventory: Inventory{
		Templates: []TemplateSpec{{Name: templateName, DiskGiB: 10}},
		Hosts:     []HostSpec{{Name: "big", Cores: 1 << 20, MemoryMiB: 1 << 30}},
	}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	do := func(path, body string) {
		if status, answer := s.Do("POST", path, body); status >= 300 {
			tb.Fatal(status, answer)
		}
	}
	do("/tags", "<tag><name>mine</name></tag>")
	for i := range count {
		do("/vms", vmBody(fmt.Sprintf("vm-%d", i), ""))
	}
	clock.Advance(time.Minute)
	vms := s.VMs()
	for _, v := range vms {
		do("/vms/"+v.ID+"/nics", "<nic><name>nic1</name></nic>")
		do("/vms/"+v.ID+"/tags", "<tag><name>mine</name></tag>")
		do("/vms/"+v.ID+"/start", "<action/>")
	}
	for i, v := range vms {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8)
		if err := s.SetGuestAddresses(v.ID, []GuestNIC{{Name: "eth0", MAC: v.Name, Addresses: []netip.Prefix{address}}}); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}
