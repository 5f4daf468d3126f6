package ovirtsim

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestAddressesComeLate(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Timings = map[string]time.Duration{TimeGuestReport: 3 * time.Minute} })
	id := e.vm("a", "")
	e.up(id)
	nic := GuestNIC{Name: "eth0", MAC: "00:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}
	if err := e.SetGuestAddresses(id, []GuestNIC{nic}); err != nil {
		t.Fatal(err)
	}
	path := "/vms/" + id + "/reporteddevices"
	if got := text(e.must("GET", path, "")); strings.Contains(got, "10.0.0.1") {
		t.Errorf("the address is shown at once: %s", got)
	}
	e.clock.Advance(3 * time.Minute)
	if got := text(e.must("GET", path, "")); !strings.Contains(got, "10.0.0.1") {
		t.Errorf("the address is not shown: %s", got)
	}
}

// A list costs time for each VM, and for each object of which a link is followed.
func TestListsTakeTime(t *testing.T) {
	e := newEngine(t)
	for _, name := range []string{"a", "b", "c"} {
		e.vm(name, "")
	}
	for timing, d := range map[string]time.Duration{TimeListVM: 10 * time.Millisecond, TimeFollow: 20 * time.Millisecond} {
		if err := e.SetTiming(timing, d); err != nil {
			t.Fatal(err)
		}
	}
	e.ResetRequests()
	for path, least := range map[string]time.Duration{
		"/vms": 30 * time.Millisecond, "/vms?max=1": 10 * time.Millisecond,
		"/vms?follow=nics,tags": 150 * time.Millisecond, "/vms?follow=nics,tags&max=1": 50 * time.Millisecond,
	} {
		for range 2 { // the second answer is the same as the first
			start := time.Now()
			e.must(http.MethodGet, path, "")
			if took := time.Since(start); took < least {
				t.Errorf("%s took %s, want %s", path, took, least)
			}
		}
	}
	if got := e.Followed(); got != 2*(6+2) {
		t.Errorf("%d objects were followed", got)
	}
}
