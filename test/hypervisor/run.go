package hypervisor

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// behavior is a behavior that each driver has.
type behavior[M Machine, C Cluster] struct {
	name string
	// options are the settings of the simulator.
	options SimulatorOptions
	check   func(e *environment[M, C])
}

// Run checks each behavior in a subtest with its name.
func Run[M Machine, C Cluster](t *testing.T, a Adapter[M, C]) {
	t.Helper()
	log.SetLogger(background.logger())
	all := behaviors[M, C]()
	t.Logf("%d behaviors", len(all))
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.check(newEnvironment(t, a, b.options))
		})
	}
}

// behaviors returns all behaviors.
func behaviors[M Machine, C Cluster]() (all []behavior[M, C]) {
	for _, list := range [][]behavior[M, C]{
		lifecycle[M, C](), sizes[M, C](), foreign[M, C](), outside[M, C](), userData[M, C](),
		failures[M, C](), queue[M, C](), session[M, C](), crashes[M, C](), storms[M, C](),
	} {
		all = append(all, list...)
	}
	return all
}
