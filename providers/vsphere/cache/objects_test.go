package cache

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/utils/ptr"
)

// vCenter may report a change as a whole or only the part that changed.
func TestAttributesInParts(t *testing.T) {
	g := NewWithT(t)
	v := &VM{}
	field := func(key int32, value string) *types.CustomFieldStringValue {
		return &types.CustomFieldStringValue{CustomFieldValue: types.CustomFieldValue{Key: key}, Value: value}
	}
	v.apply("customValue", types.ArrayOfCustomFieldValue{CustomFieldValue: []types.BaseCustomFieldValue{field(101, "a"), field(102, "b")}})
	g.Expect(v.Attributes).To(Equal(map[int32]string{101: "a", 102: "b"}))
	v.apply("customValue[101]", *field(101, "c"))
	v.apply("customValue[103]", *field(103, "d"))
	v.apply("customValue[102].value", "e")
	g.Expect(v.Attributes).To(Equal(map[int32]string{101: "c", 102: "e", 103: "d"}))
	v.apply("customValue[101]", nil)
	g.Expect(v.Attributes).To(Equal(map[int32]string{102: "e", 103: "d"}))
}

func TestSettings(t *testing.T) {
	g := NewWithT(t)
	v := &VM{}
	v.apply(userDataProperty, types.OptionValue{Key: "guestinfo.userdata.encoding", Value: "base64"})
	v.apply(zoneProperty, &types.OptionValue{Value: "a"})
	g.Expect(v.HasUserData()).To(BeTrue())
	g.Expect(v.Zone).To(Equal("a"))
	v.apply(userDataProperty, nil)
	g.Expect(v.HasUserData()).To(BeFalse())
	v.apply(userDataProperty+".value", "gzip+base64")
	g.Expect(v.HasUserData()).To(BeTrue())
	v.apply(userDataProperty+".value", nil)
	g.Expect(v.HasUserData()).To(BeFalse())
	v.apply(ignitionProperty, types.OptionValue{Value: "gzip+base64"})
	g.Expect(v.HasUserData()).To(BeTrue())
}

func TestClusterReportedInParts(t *testing.T) {
	g := NewWithT(t)
	o := NewObjects()
	at := ref{Type: "ClusterComputeResource", Value: "domain-c1"}
	whole := types.ClusterConfigInfoEx{DrsConfig: types.ClusterDrsConfigInfo{Enabled: ptr.To(true)}, Rule: []types.BaseClusterRuleInfo{
		&types.ClusterAntiAffinityRuleSpec{ClusterRuleInfo: types.ClusterRuleInfo{Name: "r"}, Vm: []ref{{Type: "VirtualMachine", Value: "a"}}},
		&types.ClusterAffinityRuleSpec{ClusterRuleInfo: types.ClusterRuleInfo{Name: "together"}},
	}}
	tell := func(name string, value any) {
		o.applyCluster(types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: at, ChangeSet: []types.PropertyChange{{Name: name, Val: value}}})
	}
	tell("configurationEx", whole)
	g.Expect(o.Clusters[at].Rules).To(HaveLen(1))
	g.Expect(o.takePartial()).To(BeEmpty())
	tell("configurationEx.rule", types.ArrayOfClusterRuleInfo{})
	g.Expect(o.takePartial()).To(Equal([]ref{at}))
	g.Expect(o.takePartial()).To(BeEmpty(), "it is read once")
	g.Expect(o.Clusters[at].Stale).To(BeTrue())
	tell("configurationEx", whole)
	g.Expect(o.Clusters[at].Stale).To(BeFalse())
}
