package vsphere

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vapi/rest"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// restLogins is the request that logs in at the REST API.
const restLogins = "POST /rest/com/vmware/cis/session"

// rotatedBed returns a test environment with a session whose password is not
// valid in vCenter any more. wait is the delay after a rejected login.
func rotatedBed(t *testing.T, wait time.Duration) *bed {
	t.Helper()
	b := newBed(t)
	b.options.timeouts.MinLoginRetry, b.options.timeouts.MaxLoginRetry = wait, wait
	b.connector = b.newConnector()
	b.addLibrary()
	b.inspect(b.cluster)
	b.vc.SetPassword("rotated")
	return b
}

// A password that was changed in vCenter and not yet in the Secret does not
// lock the account, however many machines use the REST API.
func TestWrongPasswordAtTheREST(t *testing.T) {
	b := rotatedBed(t, time.Hour)
	b.vc.ResetRequests()
	for i := range 10 {
		m := b.fromLibrary("m", "golden")
		err := b.connect(m).Create(b.ctx(), m, createOptions)
		b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.CredentialsInvalidReason), "try %d: %v", i, err)
		b.Expect(err).To(MatchError(ContainSubstring("rejected the credentials at its REST API")))
	}
	b.Expect(b.vc.Requests()[restLogins]).To(BeNumerically("<=", 2), "vCenter locks an account out after five")

	b.setPassword("rotated")
	b.inspect(b.cluster)
	b.createAll(b.fromLibrary("m", "golden"))
}

// The old password is tried again after the delay when it is restored in
// vCenter.
func TestRejectedRESTLoginIsRetried(t *testing.T) {
	b := rotatedBed(t, time.Millisecond)
	m := b.fromLibrary("m", "golden")
	err := b.connect(m).Create(b.ctx(), m, createOptions)
	b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.CredentialsInvalidReason))

	b.vc.SetPassword(vcenter.DefaultPassword)
	b.Eventually(func() error { return b.connect(m).Create(b.ctx(), m, createOptions) }).Should(Succeed())
	b.waitForState(m, hypervisor.Running)
}

// If only the login at the REST API has ended, it is replaced at once.
func TestEndedRESTLogin(t *testing.T) {
	b := newBed(t)
	b.addLibrary()
	b.createAll(b.fromLibrary("first", "golden"))
	s := b.connect(b.machine("any")).(*driver).session
	b.Expect(s.CallREST(b.ctx(), func(ctx context.Context, c *rest.Client) error { return c.Logout(ctx) })).To(Succeed())
	s.names.DropAll()
	b.vc.ResetRequests()
	next := b.fromLibrary("next", "golden")
	b.Expect(b.connect(next).Create(b.ctx(), next, createOptions)).To(Succeed())
	b.Expect(b.vc.Requests()).To(HaveKeyWithValue(restLogins, 1))
}
