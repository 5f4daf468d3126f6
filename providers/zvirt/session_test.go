package zvirt

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

func TestTokenIsRenewed(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.engine.ResetRequests()
	b.engine.ExpireTokens()
	b.reconcileUntil(b.connector, markDeleted(m), false, "release")
	b.Expect(b.engine.Requests()["POST /sso/oauth/token"]).To(Equal(1))
}

func TestTokenIsRevoked(t *testing.T) {
	b := newBed(t)
	b.create("worker-1")
	b.connector.Close()
	b.Expect(b.engine.Tokens()).To(BeZero())
}

func TestConnectionsAreReused(t *testing.T) {
	b := newBed(t)
	b.create("worker-1")
	b.engine.ResetRequests()
	b.create("worker-2")
	b.Expect(sum(b.engine.Requests())).To(BeNumerically(">", 10))
	b.Expect(b.engine.Connections().Made).To(BeNumerically("<=", 1))
}

func TestRestartOfTheEngine(t *testing.T) {
	b := newBed(t)
	m := b.create("worker-1")
	b.engine.SetDown(true)
	b.Expect(b.expectFailure(m, infrav1.EndpointUnreachableReason)).To(MatchError(ContainSubstring("503")))
	b.engine.SetDown(false)
	b.expectChange("worker-1")
	b.reconcileUntil(b.connector, m, true, "rest")
	b.Expect(b.vmsNamed("worker-1")).To(HaveLen(1))
}
