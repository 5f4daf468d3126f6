package ovirtsim

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// bodies are guests that only record their calls.
type bodies struct {
	mu    sync.Mutex
	calls []string
	last  VM
	done  chan struct{}
}

func (b *bodies) note(what string, vm VM) error {
	b.mu.Lock()
	b.calls, b.last = append(b.calls, what), vm
	b.mu.Unlock()
	b.done <- struct{}{}
	return nil
}

func (b *bodies) PowerOn(_ context.Context, vm VM) error { return b.note("on", vm) }

func (b *bodies) PowerOff(_ context.Context, vm VM, soft bool) error {
	if soft {
		return b.note("shutdown", vm)
	}
	return b.note("off", vm)
}

func (b *bodies) Destroy(_ context.Context, vm VM) error { return b.note("destroy", vm) }

func withBodies(t *testing.T) (*engine, *bodies) {
	t.Helper()
	b := &bodies{done: make(chan struct{}, 10)}
	return newEngine(t, func(o *Options) { o.Guests = b }), b
}

const engineDocument = `#cloud-config
ssh_pwauth: true
disable_root: false
`

func TestCloudInit(t *testing.T) {
	e, guests := withBodies(t)
	id := e.vm("a", `<initialization><host_name>node-1</host_name><custom_script>runcmd:
- echo a &lt; b
</custom_script><nic_configurations><nic_configuration><name>eth0</name><on_boot>true</on_boot><boot_protocol>static</boot_protocol>
<ip><address>10.0.0.5</address><netmask>255.255.255.0</netmask><gateway>10.0.0.1</gateway></ip></nic_configuration></nic_configurations>
<dns_servers>10.0.0.2</dns_servers></initialization>`)
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	<-guests.done
	user := string(guests.last.Drive["openstack/latest/user_data"])
	if !strings.HasPrefix(user, "#cloud-config\n") || !strings.HasSuffix(user, "runcmd:\n- echo a < b\n") ||
		strings.Count(user, "runcmd:") != 2 || !strings.Contains(user, "chpasswd:\n  expire: false\n") {
		t.Fatalf("user data:\n%s", user)
	}
	for line := range strings.SplitSeq(engineDocument, "\n") {
		if !strings.Contains(user, line) {
			t.Errorf("user data lacks %q:\n%s", line, user)
		}
	}
	var metadata struct{ Hostname string }
	if err := json.Unmarshal(guests.last.Drive["openstack/latest/meta_data.json"], &metadata); err != nil || metadata.Hostname != "node-1" {
		t.Fatalf("metadata: %v %s", err, guests.last.Drive["openstack/latest/meta_data.json"])
	}
	var network struct {
		Networks []struct {
			Link    string `json:"link"`
			Address string `json:"ip_address"`
		}
	}
	if err := json.Unmarshal(guests.last.Drive["openstack/latest/network_data.json"], &network); err != nil ||
		len(network.Networks) != 1 || network.Networks[0].Link != "eth0" || network.Networks[0].Address != "10.0.0.5" {
		t.Fatalf("network: %v %+v", err, network)
	}
}

func TestInitializationIsForTheFirstBootOnly(t *testing.T) {
	e, guests := withBodies(t)
	id := e.vm("a", "<initialization><custom_script>a: b\n</custom_script></initialization>")
	for _, c := range []struct {
		action string
		drive  bool
	}{
		{"<action/>", true},
		{"<action/>", false},
		{"<action><use_cloud_init>true</use_cloud_init></action>", true},
		{"<action><use_cloud_init>false</use_cloud_init></action>", false},
	} {
		e.must("POST", "/vms/"+id+"/start", c.action)
		<-guests.done
		if got := len(guests.last.Drive) > 0; got != c.drive {
			t.Errorf("%s: a drive: %t", c.action, got)
		}
		e.clock.Advance(time.Minute)
		e.must("POST", "/vms/"+id+"/stop", "<action/>")
		<-guests.done
		waitFor(t, func() bool { return e.status(id) == vmDown })
	}
	e.refuse("POST", "/vms/"+id+"/start", "<action><use_cloud_init>true</use_cloud_init><use_ignition>true</use_ignition></action>", 409, "Only one of")
}

// waitFor polls until a condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to hold")
		}
	}
}

func TestInterfacesFile(t *testing.T) {
	e, guests := withBodies(t)
	id := e.vm("a", `<initialization><cloud_init_network_protocol>eni</cloud_init_network_protocol><nic_configurations><nic_configuration>
<name>eth0</name><on_boot>true</on_boot><boot_protocol>dhcp</boot_protocol></nic_configuration></nic_configurations></initialization>`)
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	<-guests.done
	if got := string(guests.last.Drive["openstack/content/0000"]); got != "auto eth0\niface eth0 inet dhcp\n" {
		t.Fatalf("content/0000: %q", got)
	}
}

func TestIgnition(t *testing.T) {
	e, guests := withBodies(t)
	id := e.vm("a", `<os><type>rhcos_x64</type></os><initialization><host_name>node-1</host_name><custom_script>{"ignition":{"version":"3.2.0"}}</custom_script></initialization>`)
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	<-guests.done
	user := string(guests.last.Drive["openstack/latest/user_data"])
	if !strings.Contains(user, `"version":"3.2.0"`) || !strings.Contains(user, "data:,node-1") {
		t.Fatalf("user data: %s", user)
	}
	broken := e.vm("b", `<os><type>rhcos_x64</type></os><initialization><custom_script>#cloud-config</custom_script></initialization>`)
	e.refuse("POST", "/vms/"+broken+"/start", "<action/>", 409, "no valid JSON")
}

func TestPayloadReplacesInitialization(t *testing.T) {
	e, guests := withBodies(t)
	file := func(content string) string {
		return "<payloads><payload><type>cdrom</type><files><file><name>user-data</name><content>" + content + "</content></file></files></payload></payloads>"
	}
	id := e.vm("a", file("x: y")+"<initialization><custom_script>a: b</custom_script></initialization>")
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	<-guests.done
	if len(guests.last.Drive) > 0 || string(guests.last.Payload["user-data"]) != "x: y" {
		t.Fatalf("got %v %v", guests.last.Drive, guests.last.Payload)
	}
	e.refuse("POST", "/vms", vmBody("b", file(strings.Repeat("x", maxPayload+1))), 400, "Payload is limited to 8K")
}

func TestGuestsTalkBack(t *testing.T) {
	e, guests := withBodies(t)
	id := e.vm("a", "")
	e.must("POST", "/vms/"+id+"/start", "<action/>")
	<-guests.done
	if devices := e.must("GET", "/vms/"+id+"/reporteddevices", ""); len(devices.kids) != 0 {
		t.Fatalf("reported too early: %s", text(devices))
	}
	nics := []GuestNIC{{Name: "eth0", MAC: "56:6f:1a:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}}}
	if err := e.SetGuestAddresses(id, nics); err != nil {
		t.Fatal(err)
	}
	e.want(id, vmUp)
	device := e.must("GET", "/vms/"+id+"/reporteddevices", "").get("reported_device")
	if device.str("ips/ip/address") != "10.0.0.5" || device.str("ips/ip/version") != "v4" || device.str("mac/address") != nics[0].MAC {
		t.Fatalf("reported: %s", text(device))
	}
	if err := e.GuestStopped(id); err != nil {
		t.Fatal(err)
	}
	e.want(id, vmDown)
	e.must("DELETE", "/vms/"+id, "")
	<-guests.done
	if got := strings.Join(guests.calls, " "); got != "on destroy" {
		t.Fatalf("calls: %s", got)
	}
}
