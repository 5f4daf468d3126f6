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
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

const (
	leastUser     = "nova@internal"
	leastPassword = "least"
)

// guidePermits returns the permits that docs/zvirt.md lists for the role.
func guidePermits(g *WithT) (names []string) {
	text, err := os.ReadFile("../../docs/zvirt.md")
	g.Expect(err).NotTo(HaveOccurred())
	row := regexp.MustCompile(`(?m)^\| the data center, or .*$`).FindString(string(text))
	for _, match := range regexp.MustCompile("`([a-z_]+)` \\d+").FindAllStringSubmatch(row, -1) {
		names = append(names, match[1])
	}
	g.Expect(names).To(ContainElements("login", "attach_disk_profile"))
	return names
}

// newLeastBed returns a bed whose cluster has a user with the documented role.
func newLeastBed(t *testing.T, change func(*ovirtsim.UserSpec), options ...func(*ovirtsim.Options)) *bed {
	t.Helper()
	spec := ovirtsim.UserSpec{
		Name: leastUser, Password: leastPassword, Permits: guidePermits(NewWithT(t)), On: []string{"data_center/Default"},
		SystemPermits: []string{"tag_management"},
	}
	change(&spec)
	b := newBed(t, append(options, func(o *ovirtsim.Options) { o.Users = []ovirtsim.UserSpec{spec} })...)
	b.enrich()
	secret := &corev1.Secret{}
	b.Expect(b.objects.Get(b.ctx(), client.ObjectKey{Namespace: namespace, Name: "tenant"}, secret)).To(Succeed())
	secret.Data["username"], secret.Data["password"] = []byte(leastUser), []byte(leastPassword)
	b.Expect(b.objects.Update(b.ctx(), secret)).To(Succeed())
	return b
}

// lives has a machine created and deleted, with a foreign disk that is kept. It
// returns the first failure, or nil.
func (b *bed) lives(m *infrav1.NovaZVirtMachine, disk string) (failed error) {
	b.t.Helper()
	released := false
	b.Eventually(func() bool {
		_, did, err := b.reconcile(b.connector, m, true)
		switch {
		case err != nil && !hypervisor.IsWaiting(err) && !hypervisor.IsTransient(err):
			failed = err
		case err == nil && did == "rest":
			b.attach(b.named(m.Name)[0].ID, disk)
			m = going(m)
		case err == nil && did == "release":
			released = true
		}
		return failed != nil || released
	}).Should(BeTrue())
	return failed
}

// A role with the permits of the guide is sufficient for all steps of a machine.
// Without one of them, the step that needs it fails with PermissionDenied.
func TestLeastRole(t *testing.T) {
	b := newLeastBed(t, func(*ovirtsim.UserSpec) {})
	guide := guidePermits(b.WithT)
	disk := b.foreignDisk("pvc-1")
	b.Expect(b.lives(b.machine("worker", rich), disk)).To(Succeed())
	for i, lacking := range guide {
		t.Run("without "+lacking, func(t *testing.T) {
			g := NewWithT(t)
			m := b.machine(fmt.Sprintf("without-%d", i), rich)
			if lacking == "shut_down_vm" {
				m.Spec.PowerOff.Mode = infrav1.PowerOffSoftThenHard
			}
			g.Expect(b.engine.SetPermits(leastUser, slices.DeleteFunc(slices.Clone(guide), func(p string) bool { return p == lacking }))).To(Succeed())
			if lacking == "login" {
				b.engine.ExpireTokens()
				g.Expect(b.fails(m, infrav1.CredentialsInvalidReason)).To(MatchError(ContainSubstring("not authorized to perform login")))
			} else {
				err := b.lives(m, disk)
				g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PermissionDeniedReason), "%v", err)
				g.Expect(err).To(MatchError(ContainSubstring("not authorized to perform this action")))
			}
			g.Expect(b.engine.SetPermits(leastUser, guide)).To(Succeed())
			b.until(b.connector, going(m), false, "release")
		})
	}
}

// The role is given on the objects that the guide names. Without one of them, the
// step that needs it fails with PermissionDenied.
func TestRoleOnObjects(t *testing.T) {
	places := []string{"cluster/Default", "storage_domain/data1", "template/" + templateName}
	for _, lacking := range append([]string{"", "the system"}, places...) {
		t.Run("without "+lacking, func(t *testing.T) {
			b := newLeastBed(t, func(u *ovirtsim.UserSpec) {
				u.On = slices.DeleteFunc(slices.Clone(places), func(p string) bool { return p == lacking })
				if lacking == "the system" {
					u.SystemPermits = nil
					u.Permits = append(u.Permits, "tag_management")
				}
			})
			err := b.lives(b.machine("worker", rich), b.foreignDisk("pvc-1"))
			if lacking == "" {
				b.Expect(err).NotTo(HaveOccurred())
				return
			}
			b.Expect(hypervisor.ReasonFor(err, "")).To(Equal(infrav1.PermissionDeniedReason), "%v", err)
		})
	}
}
