package tenant

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout   = 6 * time.Minute
	joinTimeout   = 4 * time.Minute
	deleteTimeout = 4 * time.Minute
	reportTimeout = time.Minute
)

// b is the bed that all specs share.
var b *bed.Bed

func TestTenant(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Workload clusters on hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	name := "suite"
	// The first registered cleanup runs last.
	DeferCleanup(func() {
		Expect(leftovers(name)).To(BeEmpty(), "a stopped bed leaves no namespace, no control group and no mount")
	})
	b = harness.Start(ctx, bed.Options{Name: name, Hypervisors: bed.Hypervisors(), ShortLease: true})
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "tenant") })

// everything is set if all specs run on all hypervisors, and not only on those that
// firstOnly returns.
var everything = os.Getenv("NOVA_SUITES") == "full"

// describeOn describes something on hypervisors, with their names as labels.
func describeOn(hypervisors []string, text string, body func(hypervisor string), args ...any) bool {
	for _, hypervisor := range hypervisors {
		Describe(text+" on "+hypervisor, append([]any{Offset(1), Label(hypervisor), func() { body(hypervisor) }}, args...)...)
	}
	return true
}

// firstOnly are the hypervisors for specs that say little about a hypervisor, or that
// the conformance suite of drivers has in similar form.
func firstOnly() []string {
	if everything {
		return bed.Hypervisors()
	}
	return []string{bed.VSphere}
}

// on returns the hypervisor of a cluster.
func on(c bed.Cluster) bed.Hypervisor {
	GinkgoHelper()
	h, err := b.Hypervisor(c.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	return h
}

// cluster is a cluster on a hypervisor: namespaces and addresses are each used once, so that no
// spec finds objects of another one.
func cluster(hypervisor, name string, address int) bed.Cluster {
	name += "-" + hypervisor
	address += 30 * bed.Index(hypervisor)
	return bed.Cluster{
		Name: name, Namespace: name, Hypervisor: hypervisor, ControlPlanes: 1,
		Endpoint: "10.77.0." + strconv.Itoa(address),
	}
}

// leftovers lists the remains of a test environment of that name on this machine.
func leftovers(name string) []string {
	var left []string
	for _, pattern := range []string{"/run/netns/nova-" + name + "*", "/sys/fs/cgroup/*/nova-" + name + "*", "/run/nova-beds/" + name + "*"} {
		matches, err := filepath.Glob(pattern)
		Expect(err).NotTo(HaveOccurred())
		left = append(left, matches...)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, "/beds/"+name+"/") {
			left = append(left, line)
		}
	}
	return left
}
