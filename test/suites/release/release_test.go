package release

import (
	"context"

	. "github.com/onsi/ginkgo/v2"

	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

var _ = Describe("A release", Ordered, ContinueOnFailure, func() {
	if !everything {
		return
	}
	// Each part of the last line has a result of its own.
	BeforeAll(start)
	JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "release") })
	Context("published", Ordered, describePublished)
	Context("installed", Ordered, describeInstalled)
	Context("operated", Ordered, describeOperated)
	Context("bundled", Ordered, describeBundled)
})
