package ovirtsim

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// refusalGrid lists the operations on a VM in each state (ActionUtils of oVirt
// 4.5): x means that the engine rejects the operation.
const refusalGrid = `
                    run once stop shutdown reboot suspend migrate cancel remove template snapshot addnic editnic removenic extend
wait_for_launch     x   x    .    .        x      x       x       x      x      x        .        x      x       x         x
up                  x   x    .    .        .      .       .       x      x      x        .        .      .       .         .
powering_down       x   x    .    .        x      x       x       x      x      x        .        x      x       x         x
powering_up         x   x    .    .        .      x       .       x      x      x        .        x      x       x         x
reboot_in_progress  x   x    .    .        x      x       .       x      x      x        .        x      x       x         x
migrating           x   x    .    .        x      x       x       .      x      x        x        x      x       x         x
suspended           .   x    .    .        x      x       x       x      x      x        x        x      x       x         .
paused              .   x    .    .        x      x       .       x      x      x        .        x      x       x         x
saving_state        x   x    x    x        x      x       x       x      x      x        .        x      x       x         x
restoring_state     x   x    x    x        x      x       x       x      x      x        .        x      x       x         x
down                .   .    .    .        x      x       x       x      .      .        .        .      .       .         .
image_illegal       x   x    x    x        x      x       x       x      .      x        x        x      x       x         x
image_locked        x   x    x    x        x      x       x       x      x      x        x        x      x       x         x
not_responding      x   x    .    .        x      x       x       x      x      x        x        x      x       x         x
unassigned          x   x    x    x        x      x       x       x      x      x        x        x      x       x         x
unknown             x   x    x    x        x      x       x       x      x      x        x        x      x       x         x
`

// Stopping and shutting down a VM that is down is refused by the matrix and
// yet no error: the engine skips the command.

// gridRequest is the request behind a column.
func gridRequest(column, id, nic, disk string) (method, path, body string) {
	vm := "/vms/" + id
	switch column {
	case "run":
		return "POST", vm + "/start", "<action/>"
	case "once":
		return "POST", vm + "/start", "<action><vm/></action>"
	case "cancel":
		return "POST", vm + "/cancelmigration", "<action/>"
	case "remove":
		return "DELETE", vm, ""
	case "template":
		return "POST", "/templates", "<template><name>t-" + id + "</name><vm id='" + id + "'/></template>"
	case "snapshot":
		return "POST", vm + "/snapshots", "<snapshot><description>s</description></snapshot>"
	case "addnic":
		return "POST", vm + "/nics", "<nic><name>new</name></nic>"
	case "editnic":
		return "PUT", vm + "/nics/" + nic, "<nic><linked>false</linked></nic>"
	case "removenic":
		return "DELETE", vm + "/nics/" + nic, ""
	case "extend":
		return "PUT", "/disks/" + disk, "<disk><provisioned_size>21474836480</provisioned_size></disk>"
	}
	return "POST", vm + "/" + column, "<action/>"
}

func TestRefusalMatrix(t *testing.T) {
	e := newEngine(t)
	lines := strings.Split(strings.TrimSpace(refusalGrid), "\n")
	columns := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		status := cells[0]
		for i, cell := range cells[1:] {
			id := e.vm(strings.ReplaceAll(status, "_", "-")+"."+columns[i], "")
			nic := e.must("POST", "/vms/"+id+"/nics", "<nic><name>nic1</name></nic>").id()
			// A card of a running VM can only go when it is unplugged.
			e.must("POST", "/vms/"+id+"/nics/"+nic+"/deactivate", "<action/>")
			disk := e.must("GET", "/vms/"+id+"/diskattachments", "").get("disk_attachment").id()
			if err := e.SetVMStatus(id, status); err != nil {
				t.Fatal(err)
			}
			got, answer := e.send(gridRequest(columns[i], id, nic, disk))
			if refused := got == http.StatusConflict; refused != (cell == "x") || !refused && got >= 300 {
				t.Errorf("%s of a VM that is %s: %d %s", columns[i], status, got, text(answer))
			}
			if strings.Contains(text(answer), "%!") {
				t.Errorf("%s of a VM that is %s: %s", columns[i], status, text(answer))
			}
			_ = e.SetVMStatus(id, vmDown)
			e.clock.Advance(time.Second)
			_, _ = e.Do("DELETE", "/vms/"+id, "")
		}
	}
}

func TestRefusalsAreWorded(t *testing.T) {
	for _, c := range []struct{ state, action, words string }{
		{vmUp, actRun, "Cannot run VM. VM is running."},
		{vmUp, actMakeTemplate, "Cannot add Template. VM is locked or still running"},
		{vmDown, actReboot, "Cannot reboot VM. VM is not running."},
		{vmImageLocked, actRun, "Cannot run VM: VM is locked. Please try again in a few minutes."},
		{vmImageLocked, actShutdown, "VM is not running"},
		{vmImageIllegal, actRun, "Cannot run VM. VM's Image might be corrupted."},
		{vmPoweringDown, actReboot, "Cannot reboot VM because the VM is in Powering Down status."},
		{vmUnknown, actStop, "Cannot stop VM because the VM is in Unknown status."},
		{vmSuspended, actRemove, "Cannot remove VM because the VM is in Suspended status."},
	} {
		if err := permit(&vm{status: c.state}, c.action); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s in %s: got %v, want %q", c.action, c.state, err, c.words)
		}
	}
}

func TestRefusalsOfTemplatesAndHosts(t *testing.T) {
	e := newEngine(t)
	id := e.vm("a", "")
	made := e.must("POST", "/templates", "<template><name>t</name><vm id='"+id+"'/></template>").id()
	e.refuse("DELETE", "/templates/"+made, "", http.StatusConflict, "Image is locked")
	e.clock.Advance(time.Minute)
	e.must("DELETE", "/templates/"+made, "")

	host := e.must("GET", "/hosts?search=name%3Dhost1", "").get("host").id()
	for status, allowed := range map[string]string{
		"up": "deactivate", "maintenance": "activate", "down": "deactivate", "non_responsive": "deactivate", "non_operational": "activate deactivate",
		"install_failed": "activate deactivate", "error": "activate deactivate", "preparing_for_maintenance": "activate",
		"connecting": "", "reboot": "", "unassigned": "", "initializing": "", "installing": "", "installing_os": "", "pending_approval": "", "kdumping": "",
	} {
		for _, action := range []string{"activate", "deactivate"} {
			if err := e.SetHostStatus(host, HostStatus(status)); err != nil {
				t.Fatal(err)
			}
			got, answer := e.send("POST", "/hosts/"+host+"/"+action, "<action/>")
			if want := strings.Contains(" "+allowed, " "+action); (got < 300) != want {
				t.Errorf("%s of a host that is %s: %d %s", action, status, got, text(answer))
			}
		}
	}
}

func TestMaintenanceMovesVMs(t *testing.T) {
	e := newEngine(t)
	moving := e.vm("moving", "")
	e.up(moving)
	from := e.must("GET", "/vms/"+moving, "").get("host").id()
	e.must("POST", "/hosts/"+from+"/deactivate", "<action/>")
	e.want(moving, vmMigrating)
	e.refuse("POST", "/hosts/"+from+"/deactivate", "<action/>", http.StatusConflict, "preparing_for_maintenance")
	e.clock.Advance(time.Minute)
	e.want(moving, vmUp)
	if now := e.must("GET", "/vms/"+moving, "").get("host").id(); now == from {
		t.Error("it is where it was")
	}
	if status := e.must("GET", "/hosts/"+from, "").str("status"); status != hostMaintenance {
		t.Errorf("the host is %s", status)
	}
	e.must("POST", "/hosts/"+from+"/activate", "<action/>")
	pinned := e.vm("pinned", "<placement_policy><affinity>pinned</affinity><hosts><host id='"+from+"'/></hosts></placement_policy>")
	e.up(pinned)
	e.refuse("POST", "/hosts/"+from+"/deactivate", "<action/>", http.StatusConflict, "non-migratable VMs are: pinned")
}
