package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// memoryLimit is the most memory that a manager may have during an attack, in MiB.
const memoryLimit = 512

// started are the processes of the managers at the start, by name.
var started map[string]int

// managers are this project's.
func managers() []string { return append(bed.Providers(bed.Hypervisors()...), bed.AddonProvider) }

func processes() map[string]int {
	GinkgoHelper()
	all := map[string]int{}
	for _, name := range managers() {
		pid, err := b.Pid(name)
		Expect(err).NotTo(HaveOccurred())
		all[name] = pid
	}
	return all
}

// Lines of /proc/<pid>/status: the peak and the current resident memory.
var (
	peakLine = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)
	nowLine  = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)
)

// memory is a line of a process' status, in KiB.
func memory(pid int, line *regexp.Regexp) (int, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	found := line.FindSubmatch(status)
	if found == nil {
		return 0, fmt.Errorf("process %d has no memory", pid)
	}
	return strconv.Atoi(string(found[1]))
}

// limitMemory kills managers that exceed 2 GiB, the limit of their Deployments,
// so that a successful attack does not fill the memory of the test machine. The
// supervisor restarts them.
func limitMemory(ctx context.Context) {
	const kib = 2 << 20
	for ctx.Err() == nil {
		for _, name := range managers() {
			pid, err := b.Pid(name)
			if err != nil {
				continue
			}
			if now, err := memory(pid, nowLine); err == nil && now > kib {
				_ = b.Kill(name, syscall.SIGKILL)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// No attack may end a manager or fill its memory. The next one is measured by
// itself.
var _ = AfterEach(func(context.Context) {
	before, after := started, processes()
	started = after
	var most []string
	for name, pid := range after {
		kib, err := memory(pid, peakLine)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "clear_refs"), []byte("5"), 0)).To(Succeed(), "resetting the peak")
		AddReportEntry("memory of "+name, fmt.Sprintf("%d MiB", kib/1024), ReportEntryVisibilityFailureOrVerbose)
		if kib/1024 >= memoryLimit {
			most = append(most, fmt.Sprintf("%s: %d MiB", name, kib/1024))
		}
	}
	Expect(after).To(Equal(before), "a manager was started again")
	Expect(most).To(BeEmpty(), "a manager had more than %d MiB", memoryLimit)
})
