package modules

import (
	"fmt"
	"slices"
	"strings"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// Order returns the names of modules, each after what it depends on, and
// otherwise as they are listed. A missing name and a circle are errors.
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

// mark is how far a module's ordering is.
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
		return fmt.Errorf("modules depend on each other in a circle: %s", strings.Join(circle, " → "))
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
