package starvault

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/starvault"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout   = 8 * time.Minute
	changeTimeout = 8 * time.Minute
	// upgradeTimeout is how long the upgrade of three control plane machines may take.
	upgradeTimeout = 20 * time.Minute
)

// b is the bed of the server that is tested.
var b *bed.Bed

// programs are the servers to run against: none in a short run, because it takes
// minutes to build them.
func programs() []string {
	if os.Getenv("NOVA_SUITES") == "full" {
		return starvault.Programs
	}
	return nil
}

func TestStarVault(t *testing.T) {
	harness.RunLong(t, "Clusters with a StarVault on hosts")
}

var _ = JustAfterEach(func(ctx context.Context) { harness.KeepArtifacts(ctx, b, "starvault") })
