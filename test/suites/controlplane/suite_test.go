package controlplane

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout   = 10 * time.Minute
	changeTimeout = 15 * time.Minute
	deleteTimeout = 4 * time.Minute
	reportTimeout = time.Minute
)

// The time limits that the project promises: how long the API may be unavailable, and how soon
// Available shows the real state.
const (
	hardLoss    = 8 * time.Second
	plannedLoss = 2 * time.Second
	truth       = 10 * time.Second
)

// besides is how many times as long that may take where other suites run
// beside this one. A planned loss is judged as a hard one there: the holder of
// the address that gets no processor for three seconds loses it.
const besides = 3

// everything is set where all specs run, and not only the short ones.
var everything = os.Getenv("NOVA_SUITES") == "full"

// b is the bed that all specs share.
var b *bed.Bed

// otherVersions is set where a spec runs that needs other versions of Kubernetes.
var otherVersions bool

func TestControlPlane(t *testing.T) {
	otherVersions = slices.ContainsFunc(PreviewSpecs("Control planes on hosts").SpecReports, func(spec SpecReport) bool {
		return spec.State == types.SpecStatePassed && slices.Contains(spec.Labels(), versions)
	})
	harness.RunLong(t, "Control planes on hosts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	options := bed.Options{Name: "controlplane", Hypervisors: hypervisors()}
	if otherVersions {
		options.Versions = []string{bed.OlderVersion, bed.NewerVersion}
	}
	b = harness.Start(ctx, options)
})

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "controlplane") })

// hypervisors are those of the bed.
func hypervisors() []string { return harness.Hypervisors(everything) }

// describeOn describes something that happens to control planes on each
// hypervisor, with an address for each.
func describeOn(text string, body func(hypervisor string, address int)) bool {
	for i, name := range hypervisors() {
		Describe(text+" on "+name, Offset(1), Ordered, Label(name), func() { body(name, 11+i) })
	}
	return true
}

// describeFull describes specs that take long and depend little on the hypervisor: they exist only
// if everything is to run.
func describeFull(text string, body func(), labels ...string) bool {
	return everything && Describe(text, Offset(1), Ordered, Label(append(labels, bed.VSphere)...), body)
}

// versions is the label of specs that need other versions of Kubernetes, which take long to build.
const versions = "versions"

// cluster is a cluster of the suite: namespaces and addresses are each used once, so that no spec
// finds objects of another one.
func cluster(name string, address, controlPlanes, workers int) *bed.Cluster {
	return &bed.Cluster{
		Name: name, Namespace: name, ControlPlanes: controlPlanes, Workers: workers,
		Endpoint: "10.77.0." + strconv.Itoa(address),
	}
}
