package zvirt

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

const (
	leastUser     = "nova@internal"
	leastPassword = "least"
)

// documentedPermissions returns the permissions that docs/zvirt.md lists for
// the role.
func documentedPermissions(g *WithT) (names []string) {
	text, err := os.ReadFile("../../docs/zvirt.md")
	g.Expect(err).NotTo(HaveOccurred())
	row := regexp.MustCompile(`(?m)^\| the data center, or .*$`).FindString(string(text))
	for _, match := range regexp.MustCompile("`([a-z_]+)` \\d+").FindAllStringSubmatch(row, -1) {
		names = append(names, match[1])
	}
	g.Expect(names).To(ContainElements("login", "attach_disk_profile"))
	return names
}

// newBedWithRole returns a bed whose cluster uses a user with the documented
// role.
func newBedWithRole(t *testing.T, change func(*ovirtsim.UserSpec), options ...func(*ovirtsim.Options)) *bed {
	t.Helper()
	spec := ovirtsim.UserSpec{
		Name: leastUser, Password: leastPassword, Permits: documentedPermissions(NewWithT(t)), On: []string{"data_center/Default"},
		SystemPermits: []string{"tag_management"},
	}
	change(&spec)
	b := newBed(t, append(options, func(o *ovirtsim.Options) { o.Users = []ovirtsim.UserSpec{spec} })...)
	b.addReferences()
	b.loginAs(leastUser, leastPassword)
	return b
}

// loginAs changes the credentials of the cluster.
func (b *bed) loginAs(user, password string) {
	b.t.Helper()
	secret := &corev1.Secret{}
	b.Expect(b.objects.Get(b.ctx(), client.ObjectKey{Namespace: namespace, Name: "tenant"}, secret)).To(Succeed())
	secret.Data["username"], secret.Data["password"] = []byte(user), []byte(password)
	b.Expect(b.objects.Update(b.ctx(), secret)).To(Succeed())
}

// createAndDelete creates and deletes a machine with a foreign disk that must
// be kept. It returns the first failure, or nil.
func (b *bed) createAndDelete(m *zvirtv1.NovaZVirtMachine, disk string) (failed error) {
	b.t.Helper()
	released := false
	b.Eventually(func() bool {
		_, did, err := b.reconcile(b.connector, m, true)
		switch {
		case err != nil && !hypervisor.IsWaiting(err) && !hypervisor.IsTransient(err):
			failed = err
		case err == nil && did == "rest":
			b.attach(b.vmsNamed(m.Name)[0].ID, disk)
			m = markDeleted(m)
		case err == nil && did == "release":
			released = true
		}
		return failed != nil || released
	}).Should(BeTrue())
	return failed
}

// A role with the permissions in the guide is sufficient for all steps of a
// machine. Without one of them, the step that needs it fails with
// PermissionDenied.
func TestLeastRole(t *testing.T) {
	b := newBedWithRole(t, func(*ovirtsim.UserSpec) {})
	guide := documentedPermissions(b.WithT)
	disk := b.foreignDisk("pvc-1")
	b.Expect(b.createAndDelete(b.machine("worker", fullMachine), disk)).To(Succeed())
	for i, lacking := range guide {
		t.Run("without "+lacking, func(t *testing.T) {
			g := NewWithT(t)
			m := b.machine(fmt.Sprintf("without-%d", i), fullMachine)
			if lacking == "shut_down_vm" {
				m.Spec.PowerOff.Mode = infrav1.PowerOffSoftThenHard
			}
			g.Expect(b.engine.SetPermits(leastUser, slices.DeleteFunc(slices.Clone(guide), func(p string) bool { return p == lacking }))).To(Succeed())
			if lacking == "login" {
				b.engine.ExpireTokens()
				g.Expect(b.expectFailure(m, infrav1.CredentialsInvalidReason)).To(MatchError(ContainSubstring("not authorized to perform login")))
			} else {
				err := b.createAndDelete(m, disk)
				g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PermissionDeniedReason), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring("not authorized to perform this action")))
			}
			g.Expect(b.engine.SetPermits(leastUser, guide)).To(Succeed())
			b.reconcileUntil(b.connector, markDeleted(m), false, "release")
		})
	}
}

// The role is assigned on the objects that the guide lists. Without one of
// them, the step that needs it fails with PermissionDenied.
func TestRoleOnObjects(t *testing.T) {
	places := []string{"cluster/Default", "storage_domain/data1", "template/" + templateName}
	for _, lacking := range append([]string{"", "the system"}, places...) {
		t.Run("without "+lacking, func(t *testing.T) {
			b := newBedWithRole(t, func(u *ovirtsim.UserSpec) {
				u.On = slices.DeleteFunc(slices.Clone(places), func(p string) bool { return p == lacking })
				if lacking == "the system" {
					u.SystemPermits = nil
					u.Permits = append(u.Permits, "tag_management")
				}
			})
			err := b.createAndDelete(b.machine("worker", fullMachine), b.foreignDisk("pvc-1"))
			if lacking == "" {
				b.Expect(err).NotTo(HaveOccurred())
				return
			}
			b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PermissionDeniedReason), "%v", err)
		})
	}
}
