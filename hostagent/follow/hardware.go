package follow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/disk"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	cpuDir    = "/sys/devices/system/cpu/"
	memoryDir = "/sys/devices/system/memory/"
	meminfo   = "/proc/meminfo"
	// hardwareTimeout is how long the kernel may take to show hardware that the
	// hypervisor has added, firstHardwareTimeout is the same if none may be added, and capacityTimeout is how long the kubelet may take to report it.
	hardwareTimeout      = 30 * time.Second
	firstHardwareTimeout = 5 * time.Second
	capacityTimeout      = time.Minute
	// memoryTolerance is a difference of memory, in KiB, for which the kubelet is not
	// restarted.
	memoryTolerance = 64 << 10
	// diskTolerance is the same for the file system of pods.
	diskTolerance = 1 << 20
	// podFiles is the folder that the kubelet reports the size of.
	podFiles = "/var/lib/kubelet"
)

// managerStates are the files in which managers of the kubelet with a static policy
// keep the hardware. A kubelet with other hardware does not start with them.
var managerStates = []struct{ file, policy, option string }{
	{"/var/lib/kubelet/cpu_manager_state", "static", "cpuManagerPolicy"},
	{"/var/lib/kubelet/memory_manager_state", "Static", "memoryManagerPolicy"},
}

// changeHardware lets the node use what its VM got while it ran: the kernel sets CPUs
// and memory online, the root file system is extended, and the kubelet reads all sizes
// when it starts.
func changeHardware(ctx context.Context, m *machine.Machine, client *cluster.Client, former []*nodeconfig.Settings, s *nodeconfig.Settings) error {
	if !changed(hardwareSettings, former, s) || s.Hardware == (nodeconfig.Hardware{}) {
		return nil
	}
	if err := waitForHardware(ctx, m, s.Hardware, hasLess(former, s, cpus) || hasLess(former, s, memory)); err != nil {
		return err
	}
	// Space that was free at the first boot is the user's.
	if hasLess(former, s, bootDisk) {
		if err := disk.Grow(ctx, m, "/", s.Hardware.BootDiskGiB); err != nil {
			return err
		}
	}
	return reportHardware(ctx, m, client, s.Node)
}

// reportHardware restarts the kubelet if the node has more than it has read.
func reportHardware(ctx context.Context, m *machine.Machine, client *cluster.Client, node string) error {
	capacity, err := client.Capacity(ctx, node)
	if err != nil || !outdated(m, capacity) && !smaller(ctx, m, capacity) {
		return err //nolint:wrapcheck // it names the Node
	}
	if err := checkManagers(m); err != nil && outdated(m, capacity) {
		return err
	}
	m.Logf("Restarting the kubelet for %d CPUs, %d KiB of memory and %d KiB of disk", onlineCPUs(m), totalMemory(m), podSpace(ctx, m))
	if err := restartKubelet(ctx, m); err != nil {
		return err
	}
	for until := m.Now().Add(capacityTimeout); ; {
		if capacity, err = client.Capacity(ctx, node); err == nil && !outdated(m, capacity) && !smaller(ctx, m, capacity) {
			return nil
		}
		if m.Now().After(until) {
			return errors.Join(errors.New("the kubelet does not report the added hardware"), err)
		}
		if err := m.Sleep(ctx, time.Second); err != nil {
			return err //nolint:wrapcheck // it says that it waited
		}
	}
}

func hardwareSettings(s *nodeconfig.Settings) any { return s.Hardware }

func cpus(h nodeconfig.Hardware) int64     { return h.CPUs }
func memory(h nodeconfig.Hardware) int64   { return h.MemoryMiB }
func bootDisk(h nodeconfig.Hardware) int64 { return h.BootDiskGiB }

// hasLess reports whether former settings have a smaller size, and not none.
func hasLess(former []*nodeconfig.Settings, s *nodeconfig.Settings, size func(nodeconfig.Hardware) int64) bool {
	return slices.ContainsFunc(former, func(f *nodeconfig.Settings) bool {
		return size(f.Hardware) > 0 && size(f.Hardware) < size(s.Hardware)
	})
}

// waitForHardware sets CPUs and memory online until the node has the wanted ones. The
// first settings after the boot contain the hardware of the VM whether it has changed or
// not, and a kernel may use less than that, for instance with the argument nosmt. So
// unless it is known that some was added, the wait is short, and hardware that is
// missing then is no error.
func waitForHardware(ctx context.Context, m *machine.Machine, wanted nodeconfig.Hardware, added bool) error {
	timeout := firstHardwareTimeout
	if added {
		timeout = hardwareTimeout
	}
	for until := m.Now().Add(timeout); ; {
		missing, err := addHardware(m, wanted)
		switch {
		case missing == "":
			return nil
		case !m.Now().Before(until) && added:
			return errors.Join(errors.New(missing), err)
		case !m.Now().Before(until):
			m.Logf("Continuing although %s", missing)
			return nil
		}
		if err := m.Sleep(ctx, time.Second); err != nil {
			return err //nolint:wrapcheck // it says that it waited
		}
	}
}

// addHardware sets CPUs and memory online, if there are fewer than wanted. It returns
// the hardware that is missing after that.
func addHardware(m *machine.Machine, wanted nodeconfig.Hardware) (missing string, err error) {
	if onlineCPUs(m) < wanted.CPUs {
		err = errors.Join(err, setOnline(m, cpuDir+"cpu[0-9]*/online", "0", "1"))
	}
	size, known := onlineMemory(m)
	if known && size < wanted.MemoryMiB {
		err = errors.Join(err, setOnline(m, memoryDir+"memory[0-9]*/state", "offline", "online"))
		size, _ = onlineMemory(m)
	}
	switch online := onlineCPUs(m); {
	case online < wanted.CPUs:
		return fmt.Sprintf("the kernel has %d CPUs instead of %d", online, wanted.CPUs), err
	case known && size < wanted.MemoryMiB:
		return fmt.Sprintf("the kernel has %d MiB of memory instead of %d", size, wanted.MemoryMiB), err
	}
	return "", nil
}

// setOnline writes a state to the files that have another one.
func setOnline(m *machine.Machine, pattern, from, to string) error {
	paths, err := filepath.Glob(m.At(pattern))
	for _, path := range paths {
		path = strings.TrimPrefix(path, strings.TrimSuffix(m.At("/"), "/"))
		if strings.TrimSpace(m.Read(path)) == from {
			err = errors.Join(err, m.Set(path, to))
		}
	}
	return err
}

// onlineCPUs returns the number of CPUs that the kernel uses. The first one may have no
// file.
func onlineCPUs(m *machine.Machine) int64 {
	all, err := filepath.Glob(m.At(cpuDir + "cpu[0-9]*"))
	if err != nil {
		return 0
	}
	count := int64(0)
	for _, path := range all {
		if strings.TrimSpace(m.Read(cpuDir+filepath.Base(path)+"/online")) != "0" {
			count++
		}
	}
	return count
}

// onlineMemory returns the memory that the kernel uses in MiB. It is not known if the
// kernel cannot add memory.
func onlineMemory(m *machine.Machine) (memory int64, known bool) {
	block, err := strconv.ParseInt(strings.TrimSpace(m.Read(memoryDir+"block_size_bytes")), 16, 64)
	states, globErr := filepath.Glob(m.At(memoryDir + "memory[0-9]*"))
	if cmp.Or(err, globErr) != nil {
		return 0, false
	}
	for _, path := range states {
		if strings.TrimSpace(m.Read(memoryDir+filepath.Base(path)+"/state")) == "online" {
			memory += block
		}
	}
	return memory >> 20, true
}

// totalMemory returns the memory that the kubelet would report, in KiB.
func totalMemory(m *machine.Machine) int64 {
	for line := range strings.Lines(m.Read(meminfo)) {
		if rest, is := strings.CutPrefix(line, "MemTotal:"); is {
			text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			size, _ := strconv.ParseInt(text, 10, 64)
			return size
		}
	}
	return 0
}

// outdated reports whether the node has more hardware than the kubelet has read.
func outdated(m *machine.Machine, reported cluster.Capacity) bool {
	return onlineCPUs(m) > reported.CPUs || totalMemory(m)-reported.MemoryKiB > memoryTolerance
}

// smaller reports whether the kubelet has read a smaller file system.
func smaller(ctx context.Context, m *machine.Machine, reported cluster.Capacity) bool {
	return reported.DiskKiB > 0 && podSpace(ctx, m)-reported.DiskKiB > diskTolerance
}

// podSpace returns the size of the file system of pods in KiB; zero if it is not known.
func podSpace(ctx context.Context, m *machine.Machine) int64 {
	text, err := m.Output(ctx, "stat", "--file-system", "--format=%S %b", podFiles)
	if err != nil {
		return 0
	}
	var block, blocks int64
	if _, err := fmt.Sscan(text, &block, &blocks); err != nil {
		return 0
	}
	return block * blocks >> 10
}

// checkManagers returns an error if the kubelet would not start with other hardware.
func checkManagers(m *machine.Machine) error {
	for _, s := range managerStates {
		var state struct {
			Policy string `json:"policyName"`
		}
		if json.Unmarshal([]byte(m.Read(s.file)), &state) == nil && state.Policy == s.policy {
			return fmt.Errorf("the kubelet has %s: %s and does not start with other hardware; delete the Machine to replace it", s.option, s.policy)
		}
	}
	return nil
}
