package machine

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

func TestStay(t *testing.T) {
	began, now := time.Unix(1000, 0), time.Unix(5000, 0)
	creating := metav1.Condition{Reason: infrav1.CreatingReason, LastTransitionTime: metav1.NewTime(time.Unix(2000, 0))}
	for _, test := range []struct {
		name string
		was  stay
		seen bool
		is   metav1.Condition
		want stay
	}{
		{"seen for the first time", stay{}, false, creating, stay{infrav1.CreatingReason, time.Unix(2000, 0)}},
		{"seen for the first time, without bootstrap progress", stay{}, false, metav1.Condition{}, stay{"", now}},
		{"as before", stay{infrav1.CreatingReason, began}, true, creating, stay{infrav1.CreatingReason, began}},
		{"of another reason", stay{infrav1.RequestQueuedReason, began}, true, creating, stay{infrav1.CreatingReason, now}},
	} {
		NewWithT(t).Expect(test.was.next(test.is, test.seen, now)).To(Equal(test.want), test.name)
	}
}

func TestCensus(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	at := func(reason string, ago time.Duration) metav1.Condition {
		return metav1.Condition{Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-ago))}
	}
	one, two := &census{}, &census{}
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "team", Name: name} }
	one.count(key("a"), "K", "blue", at(infrav1.CreatingReason, time.Minute), metav1.Condition{})
	one.count(key("b"), "K", "blue", at(infrav1.CreatingReason, time.Hour), at(infrav1.BootstrappingReason, time.Hour))
	one.count(key("c"), "K", "red", at(infrav1.ProvisionedReason, time.Hour), at(infrav1.BootstrapFailedReason, time.Minute))
	two.count(key("d"), "K", "red", at(infrav1.ProvisionedReason, 2*time.Hour), at(infrav1.BootstrapFailedReason, time.Minute))
	one.count(key("e"), "K", "red", at(infrav1.ProvisionedReason, time.Hour), metav1.Condition{})
	one.forget(key("e"))

	all := &registry{all: []*census{one, two}}
	g.Expect(all.tallies(now, func(s standing) stay { return s.vm })).To(Equal(map[group]tally{
		{"K", "team", "blue", infrav1.CreatingReason}:   {2, time.Hour},
		{"K", "team", "red", infrav1.ProvisionedReason}: {2, 2 * time.Hour},
	}))
	g.Expect(all.tallies(now, func(s standing) stay { return s.boot })).To(Equal(map[group]tally{
		{"K", "team", "blue", infrav1.BootstrappingReason}:  {1, time.Hour},
		{"K", "team", "red", infrav1.BootstrapFailedReason}: {2, time.Minute},
	}))
}
