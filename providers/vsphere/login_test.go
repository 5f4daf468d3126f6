package vsphere

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// The error of a rejected login names other possible causes beside the
// password.
func TestRejectedLogin(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  types.BaseMethodFault
		reason string
		says   string
	}{
		{"password, lock or federated user", &types.InvalidLogin{}, infrav1.CredentialsInvalidReason, "(InvalidLogin): the user can also be locked, disabled, or managed by a federated identity provider"},
		{"expired password", &types.PasswordExpired{}, infrav1.CredentialsInvalidReason, "the password has expired"},
		{"user without a role", &types.NoPermission{PrivilegeId: "System.View"}, infrav1.PermissionDeniedReason, "has no role"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			b.vc.InjectCallFault("Login", 1000, tt.fault, "")
			err := b.waitForError(b.machine("m"), tt.reason)
			b.Expect(err).To(MatchError(ContainSubstring(tt.says)))
		})
	}
}
