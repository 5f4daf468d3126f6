package harness

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// RunLong runs a suite whose specs take longer than Ginkgo's hour where all of
// them run.
func RunLong(t *testing.T, title string) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyPollingInterval(time.Second)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.Timeout = 3 * time.Hour
	ginkgo.RunSpecs(t, title, suite, reporter)
}

// Hypervisors are those of a bed: all, if everything is to run.
func Hypervisors(everything bool) []string {
	if everything {
		return bed.Hypervisors()
	}
	return []string{bed.VSphere}
}

// PrintConditions prints the conditions of an object.
func PrintConditions(to io.Writer, kind string, object conditions.Getter, name string) {
	for _, condition := range object.GetConditions() {
		if condition.Message != "" {
			_, _ = fmt.Fprintf(to, "%s %s: %s=%s %s: %s\n", kind, name, condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
}

// Start starts a suite's bed, which is stopped when the suite ends. It logs to
// the suite's output.
func Start(ctx context.Context, options bed.Options) *bed.Bed {
	ginkgo.GinkgoHelper()
	gomega.Expect(bed.Down(ctx, options.Name)).To(gomega.Succeed(), "a bed of a crashed run is removed first")
	options.Log = ginkgo.GinkgoWriter
	options.Progress = func(step string) func(error) {
		ginkgo.By(step)
		return func(error) {}
	}
	b, err := bed.Start(ctx, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func(ctx context.Context) { gomega.Expect(b.Stop(ctx)).To(gomega.Succeed()) })
	return b
}

// KeepArtifacts stores diagnostic data of the test environment in _artifacts, in a folder of the
// suite's name, if the spec that just ran has failed.
func KeepArtifacts(ctx context.Context, b *bed.Bed, suite string) {
	report := ginkgo.CurrentSpecReport()
	if !report.Failed() {
		return
	}
	at := report.LeafNodeLocation
	name := append(report.Labels(), strings.TrimSuffix(filepath.Base(at.FileName), ".go"), strconv.Itoa(at.LineNumber))
	dir := filepath.Join(tools.Root(), "_artifacts", suite, strings.Join(name, "-"))
	if err := b.CollectArtifacts(ctx, dir); err != nil {
		ginkgo.AddReportEntry("collecting artifacts failed", err.Error())
		return
	}
	ginkgo.AddReportEntry("artifacts of the bed", dir)
}
