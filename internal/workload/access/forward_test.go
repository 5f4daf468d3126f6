package access

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// A connection through an API server that hangs leaves time for the direct
// connection, also after the wait for a slot.
func TestHangingForwardLeavesTimeForDirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), timelimits.CallTimeout)
		defer cancel()
		time.Sleep(timelimits.DirectTimeout) //nolint:forbidigo // the clock of the test
		_, err := dialForward(ctx, func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "blue")
		deadline, _ := ctx.Deadline()
		if left := time.Until(deadline); err == nil || left < timelimits.DirectTimeout {
			t.Errorf("dialForward() = %v with %s left, want an error with %s left", err, left, timelimits.DirectTimeout)
		}
	})
}
