package vcenter

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestRejectedLogins(t *testing.T) {
	g := NewWithT(t)
	p := Timeouts{MinLoginRetry: time.Minute, MaxLoginRetry: 5 * time.Minute}
	e := &hypervisor.Error{Reason: infrav1.CredentialsInvalidReason, Err: errors.New("refused")}
	now := time.Now()
	var r loginBackoff
	g.Expect(r.pendingError(now)).To(Succeed(), "no login was rejected")
	for _, delay := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		r = r.next(e, now, p)
		g.Expect(r.pendingError(now.Add(delay-time.Nanosecond))).To(MatchError("refused"), "%s", delay)
		g.Expect(r.pendingError(now.Add(delay))).To(Succeed(), "%s", delay)
	}
}
