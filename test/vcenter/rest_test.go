package vcenter_test

import (
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestREST(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm := b.clone("vm", b.cloneSpec())

	client := rest.NewClient(b.client)
	b.Expect(client.Login(b.ctx, url.UserPassword("nobody", "wrong"))).NotTo(Succeed())
	b.server.ResetRequests()
	b.Expect(client.Login(b.ctx, b.server.Userinfo())).To(Succeed())
	manager := tags.NewManager(client)
	session, err := manager.Session(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(session).NotTo(BeNil())

	category, err := manager.CreateCategory(b.ctx, &tags.Category{
		Name: "role", Cardinality: "SINGLE", AssociableTypes: []string{"VirtualMachine"},
	})
	b.Expect(err).NotTo(HaveOccurred())
	tag, err := manager.CreateTag(b.ctx, &tags.Tag{Name: "worker", CategoryID: category})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(manager.AttachTag(b.ctx, tag, vm)).To(Succeed())
	attached, err := manager.GetAttachedTags(b.ctx, vm)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(attached).To(ConsistOf(HaveField("Name", "worker")))

	requests := b.server.Requests()
	b.Expect(requests).To(HaveKeyWithValue("POST /rest/com/vmware/cis/session", 1))
	b.Expect(requests).To(HaveKeyWithValue("POST /rest/com/vmware/cis/session?get", 1))
	b.Expect(requests).To(HaveKeyWithValue("POST /rest/com/vmware/cis/tagging/tag-association/{id}?attach", 1))
}

// Clients send types with their namespace since version 7.0.1, and get them without.
func TestTypesOfCategory(t *testing.T) {
	b := start(t, vcenter.Options{})
	client := rest.NewClient(b.client)
	b.Expect(client.Login(b.ctx, b.server.Userinfo())).To(Succeed())
	manager := tags.NewManager(client)
	id, err := manager.CreateCategory(b.ctx, &tags.Category{Name: "owner", Cardinality: "SINGLE", AssociableTypes: []string{"urn:vim25:VirtualMachine"}})
	b.Expect(err).NotTo(HaveOccurred())
	category, err := manager.GetCategory(b.ctx, id)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(category.AssociableTypes).To(ConsistOf("VirtualMachine"))
	category.AssociableTypes = []string{"urn:vim25:VirtualMachine", "urn:vim25:Folder"}
	b.Expect(manager.UpdateCategory(b.ctx, category)).To(Succeed())
	category, err = manager.GetCategory(b.ctx, id)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(category.AssociableTypes).To(ConsistOf("VirtualMachine", "Folder"))
}
