package zvirt

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
)

// permits are what the account needs: docs/zvirt.md lists them.
var permits = []string{
	"create_vm", "delete_vm", "edit_vm_properties", "configure_vm_network", "configure_vm_storage", "stop_vm", "run_vm",
	"create_disk", "edit_disk_properties", "manipulate_affinity_groups", "tag_management",
}

// TestLeastRole has a machine of all steps live and die with an account that
// may do no more than it must.
func TestLeastRole(t *testing.T) {
	const name, password = "nova@internal", "least"
	b := newBed(t, func(o *ovirtsim.Options) {
		o.Users = []ovirtsim.UserSpec{{Name: name, Password: password, Permits: permits}}
	})
	b.enrich()
	secret := &corev1.Secret{}
	b.Expect(b.objects.Get(b.ctx(), client.ObjectKey{Namespace: namespace, Name: "tenant"}, secret)).To(Succeed())
	secret.Data["username"], secret.Data["password"] = []byte(name), []byte(password)
	b.Expect(b.objects.Update(b.ctx(), secret)).To(Succeed())
	disk := b.foreignDisk("pvc-1")
	m := b.create("worker-1", rich)
	b.attach(b.named("worker-1")[0].ID, disk)
	b.until(b.connector, going(m), false, "release")

	for _, without := range permits {
		b.Expect(b.engine.SetPermits(name, slices.DeleteFunc(slices.Clone(permits), func(p string) bool { return p == without }))).To(Succeed())
		m := b.machine("needs-"+without[:4], rich)
		b.Eventually(func() error {
			_, did, err := b.reconcile(b.connector, m, true)
			if err == nil && did == "rest" {
				m = going(m)
			}
			if err == nil && did == "release" {
				b.t.Fatalf("nobody needs %s", without)
			}
			return err
		}).Should(MatchError(ContainSubstring("not authorized")), without)
		b.Expect(b.engine.SetPermits(name, permits)).To(Succeed())
		b.until(b.connector, going(m), false, "release")
	}
}
