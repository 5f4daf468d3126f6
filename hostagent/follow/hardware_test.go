package follow

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// withHardware starts a node with two CPUs and 1024 MiB, which has got two CPUs and a
// block of memory that are offline. A kubelet reads the hardware when it starts.
func withHardware(t *testing.T) (*agenttest.Machine, *apiServer) {
	t.Helper()
	n, server := start(t)
	for cpu, online := range []string{"", "1", "0", "0"} {
		n.Put(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/core_id", cpu), "0\n")
		if online != "" {
			n.Put(fmt.Sprintf("sys/devices/system/cpu/cpu%d/online", cpu), online+"\n")
		}
	}
	n.Put("sys/devices/system/cpu/cpufreq/boost", "1\n")
	n.Put("sys/devices/system/memory/block_size_bytes", "20000000\n") // 512 MiB
	for block, state := range []string{"online", "online", "offline"} {
		n.Put(fmt.Sprintf("sys/devices/system/memory/memory%d/state", block), state+"\n")
	}
	n.Put("proc/meminfo", "MemTotal:        1500000 kB\nMemFree:            100 kB\n")
	n.Put("kubelet", "2 1000000")
	n.Command("systemctl", `"$T/bin/fail" || exit 1; case "$1 $2" in "restart kubelet") [ -e "$T/blind" ] || echo "$(grep -l 1 "$T"/sys/devices/system/cpu/cpu*/online | wc -l) 1500000" >"$T/kubelet"; echo "$*" >>"$T/calls"; esac`)
	server.capacity = func() map[string]any {
		var cpus, memory int
		if _, err := fmt.Sscan(n.Get("kubelet"), &cpus, &memory); err != nil {
			t.Error(err)
		}
		if n.There("sys/devices/system/cpu/cpu3/online") && cpus == 3 {
			cpus++ // the first one has no file
		}
		capacity := map[string]any{"cpu": strconv.Itoa(cpus), "memory": fmt.Sprintf("%dKi", memory)}
		if n.There("disk") {
			capacity["ephemeral-storage"] = n.Get("disk") + "Ki"
		}
		return capacity
	}
	return n, server
}

func larger(cpus, memory int64) *nodeconfig.Settings {
	s := booted()
	s.Hardware = nodeconfig.Hardware{CPUs: cpus, MemoryMiB: memory}
	return s
}

// Added hardware is set online, and the kubelet reads it once.
func TestHardwareIsAdded(t *testing.T) {
	n, server := withHardware(t)
	revision := server.want(larger(4, 1536))
	for range 2 {
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
	}
	if got := server.condition(); got != "True Applied Revision "+revision+": the settings are applied" {
		t.Error(got)
	}
	for _, path := range []string{"sys/devices/system/cpu/cpu2/online", "sys/devices/system/cpu/cpu3/online"} {
		if n.Get(path) != "1" {
			t.Errorf("%s: %s", path, n.Get(path))
		}
	}
	if state := n.Get("sys/devices/system/memory/memory2/state"); state != "online" {
		t.Errorf("memory: %s", state)
	}
	if calls := n.Get("calls"); calls != "restart kubelet\n" {
		t.Errorf("calls: %s", calls)
	}
}

// A node that has its hardware is not touched, and a CPU that a user has set offline
// stays so.
func TestHardwareIsThere(t *testing.T) {
	n, server := withHardware(t)
	n.Put("proc/meminfo", "MemTotal:        1000100 kB\n")
	server.want(larger(2, 1024))
	if err := followOnce(t, n); err != nil {
		t.Fatalf("%v\n%s", err, n.Log)
	}
	if calls, offline := n.Get("calls"), n.Get("sys/devices/system/cpu/cpu2/online"); calls != "" || offline != "0\n" || !strings.HasPrefix(server.condition(), "True Applied") {
		t.Errorf("%s, calls %q, CPU %q", server.condition(), calls, offline)
	}
}

// A kernel may use fewer CPUs and less memory than the VM has, as with the argument
// nosmt. Neither the first settings nor later ones fail because of that.
func TestKernelUsesLess(t *testing.T) {
	n, server := withHardware(t)
	for _, motd := range []string{"second\n", "third\n"} {
		s := larger(6, 4096)
		s.Machine.Files[0].Text = motd
		server.want(s)
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
		if got := server.condition(); !strings.HasPrefix(got, "True Applied") || n.Get("etc/motd") != motd {
			t.Errorf("%s, %q", got, n.Get("etc/motd"))
		}
	}
}

// Space that was free at the first boot is the user's. Space that the disk gets later is
// for the root file system.
func TestOnlyAddedSpaceIsUsed(t *testing.T) {
	n, server := withHardware(t)
	n.Put("proc/meminfo", "MemTotal:        1000100 kB\n")
	n.Put("proc/self/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
	n.Put("sys/dev/block/size", "41943040\n") // the disk, 20 GiB
	n.Put("sys/dev/block/8:1/partition", "1\n")
	n.Put("sys/dev/block/8:1/size", "20971520\n")
	n.Command("growpart", `echo "growpart $2" >>"$T/calls"; echo 62914560 >"$T/sys/dev/block/8:1/size"`)
	n.Command("systemd-growfs", `echo "growfs $*" >>"$T/calls"`)
	if err := Start(t.Context(), n.Machine, Node{Name: "blue-1"}, booted()); err != nil {
		t.Fatal(err)
	}
	n.Put("calls", "")
	for _, step := range []struct {
		size, sectors int64
		calls         string
	}{{20, 41943040, ""}, {30, 62914560, "growpart 1\ngrowfs /\n"}, {30, 62914560, "growpart 1\ngrowfs /\n"}} {
		n.Put("sys/dev/block/size", fmt.Sprintln(step.sectors))
		s := larger(2, 1024)
		s.Hardware.BootDiskGiB = step.size
		server.want(s)
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
		if calls := n.Get("calls"); calls != step.calls || !strings.HasPrefix(server.condition(), "True Applied") {
			t.Errorf("%d GiB: %s, calls %q", step.size, server.condition(), calls)
		}
	}
}

// A kubelet that has read a smaller file system is restarted once.
func TestDiskIsReported(t *testing.T) {
	n, server := withHardware(t)
	n.Put("proc/meminfo", "MemTotal:        1000100 kB\n")
	n.Put("disk", "10000000")
	n.Command("stat", `echo "4096 5000000"`)
	n.Command("systemctl", `case "$1 $2" in "restart kubelet") printf 20000000 >"$T/disk"; echo "$*" >>"$T/calls"; esac`)
	s := larger(2, 1024)
	s.Hardware.BootDiskGiB = 20
	server.want(s)
	for range 2 {
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
	}
	if calls := n.Get("calls"); calls != "restart kubelet\n" || !strings.HasPrefix(server.condition(), "True Applied") {
		t.Errorf("%s, calls %q", server.condition(), calls)
	}
}

func TestHardwareFails(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted *nodeconfig.Settings
		broken func(*agenttest.Machine)
		text   string
	}{
		"no CPU":     {wanted: larger(6, 1536), text: "adding hardware: the kernel has 4 CPUs instead of 6"},
		"no memory":  {wanted: larger(4, 4096), text: "adding hardware: the kernel has 1536 MiB of memory instead of 4096"},
		"no restart": {wanted: larger(4, 1536), broken: func(n *agenttest.Machine) { n.Put("blind", "") }, text: "adding hardware: the kubelet does not report the added hardware"},
		"static CPUs": {
			wanted: larger(4, 1536), broken: func(n *agenttest.Machine) {
				n.Put("var/lib/kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0-1"}`)
			},
			text: "adding hardware: the kubelet has cpuManagerPolicy: static and does not start with other hardware; delete the Machine to replace it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, server := withHardware(t)
			n.Put("proc/meminfo", "MemTotal:        1000100 kB\n")
			server.want(larger(2, 1024))
			if err := followOnce(t, n); err != nil {
				t.Fatalf("%v\n%s", err, n.Log)
			}
			n.Put("proc/meminfo", "MemTotal:        1500000 kB\n")
			if tc.broken != nil {
				tc.broken(n)
			}
			revision := server.want(tc.wanted)
			if err := followOnce(t, n); err == nil {
				t.Error("no error")
			}
			if got := server.condition(); got != "False StepFailed Revision "+revision+": "+tc.text {
				t.Error(got)
			}
			if restarted := n.Get("calls") != ""; restarted != (name == "no restart") {
				t.Errorf("calls: %s", n.Get("calls"))
			}
		})
	}
}

// After a reset at any command the hardware is added nevertheless.
func TestHardwareAfterReset(t *testing.T) {
	for at := 1; ; at++ {
		n, server := withHardware(t)
		n.Put("fail-at", strconv.Itoa(at))
		server.want(larger(4, 1536))
		failed := followOnce(t, n)
		n.Put("fail-at", "")
		for range 2 {
			if err := followOnce(t, n); err != nil {
				t.Fatalf("at %d: %v\n%s", at, err, n.Log)
			}
		}
		if got := server.condition(); !strings.HasPrefix(got, "True Applied") || n.Get("kubelet") == "2 1000000" {
			t.Fatalf("at %d: %s, kubelet %s", at, got, n.Get("kubelet"))
		}
		if failed == nil {
			if at < 3 {
				t.Errorf("only %d commands", at)
			}
			return
		}
	}
}

// A kubelet that would not start with the hardware keeps its version.
func TestHardwareIsAddedBeforeTheVersionChanges(t *testing.T) {
	const managerState = "var/lib/kubelet/cpu_manager_state"
	n, server, is := startOlder(t)
	n.Put("sys/devices/system/cpu/cpu0/topology/core_id", "0\n")
	n.Put("sys/devices/system/cpu/cpu1/online", "0\n")
	n.Put("proc/meminfo", "MemTotal:        1000000 kB\n")
	n.Put(managerState, `{"policyName":"static"}`)
	server.capacity = func() map[string]any {
		cpus := "1"
		if strings.Contains(n.Get("calls"), "restart kubelet") {
			cpus = "2"
		}
		return map[string]any{"cpu": cpus, "memory": "1000000Ki"}
	}
	is.Hardware = nodeconfig.Hardware{CPUs: 2}
	server.want(is)
	if err := followOnce(t, n); err == nil || !strings.HasPrefix(server.condition(), "False StepFailed") {
		t.Errorf("err = %v, %s", err, server.condition())
	}
	checkVersion(t, n, olderVersion)
	n.Put(managerState, `{"policyName":"none"}`)
	for range 2 {
		if err := followOnce(t, n); err != nil {
			t.Fatalf("%v\n%s", err, n.Log)
		}
	}
	checkVersion(t, n, newerVersion)
	if !strings.HasPrefix(server.condition(), "True Applied") {
		t.Error(server.condition())
	}
}
