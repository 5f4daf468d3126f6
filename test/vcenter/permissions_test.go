package vcenter_test

import (
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestPermissions(t *testing.T) {
	b := start(t, vcenter.Options{})
	manager := object.NewAuthorizationManager(b.client)
	one, err := manager.AddRole(b.ctx, "one", []string{"Network.Assign"})
	b.Expect(err).NotTo(HaveOccurred())
	two, err := manager.AddRole(b.ctx, "two", []string{"Network.Assign"})
	b.Expect(err).NotTo(HaveOccurred())
	root := b.client.ServiceContent.RootFolder
	before, err := manager.RetrieveEntityPermissions(b.ctx, root, false)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(before).NotTo(BeEmpty())

	set := func(principal string, role int32) error {
		return manager.SetEntityPermissions(b.ctx, root, []types.Permission{{Principal: principal, RoleId: role, Propagate: true}})
	}
	b.Expect(set("nova", one)).To(Succeed())
	b.Expect(set("other", one)).To(Succeed())
	b.Expect(set("nova", two)).To(Succeed())
	b.Expect(set("nova", two+100)).NotTo(Succeed())
	after, err := manager.RetrieveEntityPermissions(b.ctx, root, false)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(after).To(HaveLen(len(before)+2), "the permissions of others stay")
	b.Expect(after).To(ContainElements(
		And(HaveField("Principal", "nova"), HaveField("RoleId", two), HaveField("Entity", HaveValue(Equal(root)))),
		And(HaveField("Principal", "other"), HaveField("RoleId", one)),
	))
}

// Users of Single Sign-On log in beside the server's own account, whose first
// password ends with SetPassword.
func TestUsers(t *testing.T) {
	b := start(t, vcenter.Options{})
	login := func(user, password string) error {
		u := b.server.URL()
		u.User = url.UserPassword(user, password)
		c, err := govmomi.NewClient(b.ctx, u, true)
		if err == nil {
			err = c.Logout(b.ctx)
		}
		return err
	}
	account := b.server.Userinfo()
	first, _ := account.Password()
	b.Expect(login(account.Username(), first)).To(Succeed())
	b.Expect(login("nova@vsphere.local", "")).NotTo(Succeed())
	b.server.SetPassword("next")
	b.Expect(login(account.Username(), first)).NotTo(Succeed())
	b.Expect(login(account.Username()+"@vsphere.local", first)).NotTo(Succeed())
	b.Expect(login(account.Username(), "next")).To(Succeed())
}
