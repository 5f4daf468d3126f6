package vcenter_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

func TestRename(t *testing.T) {
	b := start(t, vcenter.Options{})
	vm, other := b.clone("one", b.cloneSpec()), b.clone("two", b.cloneSpec())

	b.done(vm.Rename(b.ctx, "three"))
	b.Expect(b.read(vm).Name).To(Equal("three"))
	b.Expect(b.read(vm).Config.Name).To(Equal("three"))
	b.done(b.template().Rename(b.ctx, "nova-node-next"))

	task, err := other.Rename(b.ctx, "three")
	b.Expect(err).NotTo(HaveOccurred())
	fault, _ := b.failed(task)
	b.Expect(fault).To(BeAssignableToTypeOf(&types.DuplicateName{}))
	b.Expect(b.read(other).Name).To(Equal("two"))
}
