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
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	cpuDir    = "/sys/devices/system/cpu/"
	memoryDir = "/sys/devices/system/memory/"
	meminfo   = "/proc/meminfo"
	// hardwareTimeout is how long the kernel may take to show hardware that the
	// hypervisor has added, firstHardwareTimeout is the same for the first settings,
	// and capacityTimeout is how long the kubelet may take to report it.
	hardwareTimeout      = 30 * time.Second
	firstHardwareTimeout = 5 * time.Second
	capacityTimeout      = time.Minute
	// memoryTolerance is a difference of memory, in KiB, for which the kubelet is not
	// restarted.
	memoryTolerance = 64 << 10
)

// managerStates are the files in which managers of the kubelet with a static policy
// keep the hardware. A kubelet with other hardware does not start with them.
var managerStates = []struct{ file, policy, option string }{
	{"/var/lib/kubelet/cpu_manager_state", "static", "cpuManagerPolicy"},
	{"/var/lib/kubelet/memory_manager_state", "Static", "memoryManagerPolicy"},
}

// changeHardware lets the node use CPUs and memory that its VM got while it ran: the
// kernel sets them online, and the kubelet reads them when it starts.
func changeHardware(ctx context.Context, m *machine.Machine, client *cluster.Client, former []*nodeconfig.Settings, s *nodeconfig.Settings) error {
	if !changed(hardwareSettings, former, s) || s.Hardware == (nodeconfig.Hardware{}) {
		return nil
	}
	if err := waitForHardware(ctx, m, former, s.Hardware); err != nil {
		return err
	}
	capacity, err := client.Capacity(ctx, s.Node)
	if err != nil || !outdated(m, capacity) {
		return err //nolint:wrapcheck // it names the Node
	}
	if err := checkManagers(m); err != nil {
		return err
	}
	m.Logf("Restarting the kubelet for %d CPUs and %d KiB of memory", onlineCPUs(m), totalMemory(m))
	if err := restartKubelet(ctx, m); err != nil {
		return err
	}
	for until := m.Now().Add(capacityTimeout); ; {
		if capacity, err = client.Capacity(ctx, s.Node); err == nil && !outdated(m, capacity) {
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

// waitForHardware sets CPUs and memory online until the node has the wanted ones. The
// first settings after the boot contain the hardware of the VM whether it has changed or
// not, and a kernel may use less than that, for instance with the argument nosmt: so
// they wait for a short time, and hardware that is missing then is no error.
func waitForHardware(ctx context.Context, m *machine.Machine, former []*nodeconfig.Settings, wanted nodeconfig.Hardware) error {
	known := slices.ContainsFunc(former, func(f *nodeconfig.Settings) bool {
		return f.Hardware != (nodeconfig.Hardware{}) && f.Hardware != wanted
	})
	timeout := firstHardwareTimeout
	if known {
		timeout = hardwareTimeout
	}
	for until := m.Now().Add(timeout); ; {
		missing, err := addHardware(m, wanted)
		switch {
		case missing == "":
			return nil
		case !m.Now().Before(until) && known:
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
	memory, known := onlineMemory(m)
	if known && memory < wanted.MemoryMiB {
		err = errors.Join(err, setOnline(m, memoryDir+"memory[0-9]*/state", "offline", "online"))
		memory, _ = onlineMemory(m)
	}
	switch cpus := onlineCPUs(m); {
	case cpus < wanted.CPUs:
		return fmt.Sprintf("the kernel has %d CPUs instead of %d", cpus, wanted.CPUs), err
	case known && memory < wanted.MemoryMiB:
		return fmt.Sprintf("the kernel has %d MiB of memory instead of %d", memory, wanted.MemoryMiB), err
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
