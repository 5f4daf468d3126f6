package authorities

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

func TestWorkersChange(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	// of returns a worker with other CAs, in a MachineSet of the same MachineDeployment.
	of := func(deployment, name string, mode bootstrapv1.InPlaceMode, changes ...func(*worker)) worker {
		w := worker{outdated: true, config: &bootstrapv1.NovaConfig{}, machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: deployment},
			OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: "set-of-" + deployment, Controller: ptr.To(true)}},
		}}}
		w.config.Spec.Rollout.InPlace = mode
		for _, change := range changes {
			change(&w)
		}
		return w
	}
	marked := func(ago time.Duration) func(*worker) {
		return func(w *worker) {
			w.machine.Annotations = map[string]string{}
			scope.RequestUpdate(w.machine.Annotations, now.Add(-ago))
		}
	}
	current := func(w *worker) { w.outdated, w.config = false, nil }
	foreign := func(w *worker) { w.config = nil }
	standalone := func(w *worker) { w.machine.OwnerReferences, w.machine.Labels = nil, nil }
	const (
		never  = bootstrapv1.InPlaceNever
		prefer = bootstrapv1.InPlacePrefer
		only   = bootstrapv1.InPlaceOnly
		late   = timelimits.LongGrace + time.Second
	)
	for name, tc := range map[string]struct {
		reason          string
		workers         []worker
		paused          []string
		update, replace string
	}{
		"Current":        {reason: "all have the CAs", workers: []worker{of("a", "1", only, current)}},
		"Never":          {reason: "machines are replaced", workers: []worker{of("a", "1", never), of("a", "2", never)}, replace: "set-of-a"},
		"OneAtATime":     {reason: "the others serve", workers: []worker{of("a", "1", only), of("a", "2", only), of("b", "3", only)}, update: "1 3"},
		"Busy":           {reason: "one is being changed", workers: []worker{of("a", "1", only, marked(late)), of("a", "2", only)}},
		"BusyOtherwise":  {reason: "one is being changed for another reason", workers: []worker{of("a", "1", only), of("a", "2", only, current, marked(0))}},
		"Next":           {reason: "the first one has them", workers: []worker{of("a", "1", only, current), of("a", "2", only)}, update: "2"},
		"Preferred":      {reason: "as with Only", workers: []worker{of("a", "1", prefer, marked(time.Minute)), of("b", "2", prefer)}, update: "2"},
		"PreferredLate":  {reason: "it did not end in time", workers: []worker{of("a", "1", prefer, marked(late)), of("a", "2", prefer)}, replace: "set-of-a"},
		"Mixed":          {reason: "one cannot be changed, and Cluster API replaces all", workers: []worker{of("a", "1", only), of("a", "2", never)}, replace: "set-of-a"},
		"Foreign":        {reason: "it has no NovaConfig", workers: []worker{of("a", "1", only, foreign)}, replace: "set-of-a"},
		"Standalone":     {reason: "nothing replaces it", workers: []worker{of("a", "1", never, standalone), of("a", "2", only, standalone), of("a", "3", only, standalone)}, update: "2 3"},
		"Paused":         {reason: "users want no change", workers: []worker{of("a", "1", only), of("b", "2", only)}, paused: []string{"a"}, update: "2"},
		"PausedReplaced": {reason: "Cluster API waits", workers: []worker{of("a", "1", never)}, paused: []string{"a"}, replace: "set-of-a"},
	} {
		update, replace := change(tc.workers, sets.New(tc.paused...), now)
		var names []string
		for _, w := range update {
			names = append(names, w.machine.Name)
		}
		if got, replaced := strings.Join(names, " "), strings.Join(sets.List(replace), " "); got != tc.update || replaced != tc.replace {
			t.Errorf("%s: %s: change %q and replace %q, want %q and %q", name, tc.reason, got, replaced, tc.update, tc.replace)
		}
		if slices.ContainsFunc(update, func(w *worker) bool { return w.config == nil }) {
			t.Errorf("%s: a machine without a NovaConfig is changed", name)
		}
	}
}
