package machine

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

func TestStateSince(t *testing.T) {
	began, now := time.Unix(1000, 0), time.Unix(5000, 0)
	creating := metav1.Condition{Reason: infrav1.CreatingReason, LastTransitionTime: metav1.NewTime(time.Unix(2000, 0))}
	for _, test := range []struct {
		name string
		was  stateSince
		seen bool
		is   metav1.Condition
		want stateSince
	}{
		{"seen for the first time", stateSince{}, false, creating, stateSince{infrav1.CreatingReason, time.Unix(2000, 0)}},
		{"seen for the first time, without bootstrap progress", stateSince{}, false, metav1.Condition{}, stateSince{"", now}},
		{"as before", stateSince{infrav1.CreatingReason, began}, true, creating, stateSince{infrav1.CreatingReason, began}},
		{"of another reason", stateSince{infrav1.RequestQueuedReason, began}, true, creating, stateSince{infrav1.CreatingReason, now}},
	} {
		NewWithT(t).Expect(test.was.next(test.is, test.seen, now)).To(Equal(test.want), test.name)
	}
}

func TestStateCollector(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	at := func(reason string, ago time.Duration) metav1.Condition {
		return metav1.Condition{Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-ago))}
	}
	all := &stateCollector{}
	key := func(name string) machineKey {
		return machineKey{"K", types.NamespacedName{Namespace: "team", Name: name}}
	}
	all.record(key("a"), "blue", at(infrav1.CreatingReason, time.Minute), metav1.Condition{})
	all.record(key("b"), "blue", at(infrav1.CreatingReason, time.Hour), at(infrav1.BootstrappingReason, time.Hour))
	all.record(key("c"), "red", at(infrav1.ProvisionedReason, time.Hour), at(infrav1.BootstrapFailedReason, time.Minute))
	all.record(key("d"), "red", at(infrav1.ProvisionedReason, 2*time.Hour), at(infrav1.BootstrapFailedReason, time.Minute))
	all.record(key("e"), "red", at(infrav1.ProvisionedReason, time.Hour), metav1.Condition{})
	all.Forget(key("e"))

	g.Expect(all.counts(now, func(s machineState) stateSince { return s.vm })).To(Equal(map[group]stateCount{
		{"K", "team", "blue", infrav1.CreatingReason}:   {2, time.Hour},
		{"K", "team", "red", infrav1.ProvisionedReason}: {2, 2 * time.Hour},
	}))
	g.Expect(all.counts(now, func(s machineState) stateSince { return s.boot })).To(Equal(map[group]stateCount{
		{"K", "team", "blue", infrav1.BootstrappingReason}:  {1, time.Hour},
		{"K", "team", "red", infrav1.BootstrapFailedReason}: {2, time.Minute},
	}))
}
