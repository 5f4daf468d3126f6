package modules

import (
	"fmt"
	"slices"
	"strings"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// Order returns the names of modules, each after its dependencies, and
// otherwise in the order of the list. An unknown name and a cycle are errors.
func Order(modules []addonsv1.Module) ([]string, error) {
	byName := map[string]*addonsv1.Module{}
	for i := range modules {
		byName[modules[i].Name] = &modules[i]
	}
	o := &ordering{modules: byName, state: map[string]mark{}}
	for i := range modules {
		if err := o.visit(modules[i].Name, nil); err != nil {
			return nil, err
		}
	}
	return o.out, nil
}

// mark is the state of a module in the ordering.
type mark int

const (
	unseen mark = iota
	open
	done
)

type ordering struct {
	modules map[string]*addonsv1.Module
	state   map[string]mark
	out     []string
}

func (o *ordering) visit(name string, path []string) error {
	path = append(path, name)
	switch o.state[name] {
	case done:
		return nil
	case unseen:
	case open:
		circle := path[slices.Index(path, name):]
		return fmt.Errorf("dependency cycle of modules: %s", strings.Join(circle, " → "))
	}
	o.state[name] = open
	for _, dependency := range o.modules[name].DependsOn {
		if o.modules[dependency] == nil {
			return fmt.Errorf("module %q depends on %q, which is not in the set", name, dependency)
		}
		if err := o.visit(dependency, path); err != nil {
			return err
		}
	}
	o.state[name] = done
	o.out = append(o.out, name)
	return nil
}

// Path returns the names along dependencies from one name to another: with the
// same name twice, a cycle. It returns nothing if there is no path.
func Path[T comparable](from, to T, dependsOn map[T][]T) []T {
	seen := map[T]bool{}
	var visit func(at T) []T
	visit = func(at T) []T {
		for _, next := range dependsOn[at] {
			if next == to {
				return []T{next, at}
			}
			if seen[next] {
				continue
			}
			seen[next] = true
			if found := visit(next); found != nil {
				return append(found, at)
			}
		}
		return nil
	}
	path := visit(from)
	slices.Reverse(path)
	return path
}
