package modules

import (
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/boundedtemplate"
)

// Target is a Cluster with its modules' input.
type Target struct {
	// Namespace and Name identify the Cluster.
	Namespace, Name string
	// Set is the name of the NovaModuleSet, and Origin its namespace.
	Set, Origin string
	// Revision identifies the content.
	Revision string
	// Facts are the Cluster's.
	Facts *Facts
	// ManagementImages is the registry that images of modules of the management
	// cluster come from. If not set, each image comes from its own registry.
	ManagementImages string
}

// Rendering is the content of a set rendered for a Cluster.
type Rendering struct {
	// Modules are all modules, each after its dependencies.
	Modules []Module
}

// Sources returns the sources of all modules, each once.
func (r *Rendering) Sources() []client.Object {
	var out []client.Object
	for i := range r.Modules {
		source := r.Modules[i].Source
		same := func(o client.Object) bool { return o.GetName() == source.GetName() }
		if source != nil && !slices.ContainsFunc(out, same) {
			out = append(out, source)
		}
	}
	return out
}

// Module is a rendered module.
type Module struct {
	Name string
	// Chart is the chart, as the set names it. It is nil for a path of Kustomize.
	Chart *addonsv1.Chart
	// Source is the source of the object, to be written before it. It is nil if
	// the set does not write the source itself.
	Source client.Object
	// Object is the HelmRelease or Kustomization. It is nil if the module must
	// not be written now.
	Object client.Object
	// Off means that the module is disabled here: its existing objects are
	// removed.
	Off bool
	// Unsupported is the reason why the module does not fit the Cluster's Kubernetes
	// version. Its existing objects stay unchanged.
	Unsupported string
	// After lists the modules that must be ready before this one is written:
	// dependencies of the other kind, for which Flux cannot wait itself.
	After []string
	// Needs lists all enabled modules that it depends on, also through disabled
	// ones.
	Needs []string
	// Place identifies the objects of a path in the Cluster. It is empty for a
	// chart, whose place is its Helm release.
	Place string
	// Keep leaves the module's objects when the module is removed.
	Keep bool
	// InWorkloadCluster means that the module runs in the workload cluster.
	InWorkloadCluster bool
}

// Render renders a content into Flux objects for one Cluster. An error names
// the module and its problem.
func Render(c Content, t Target) (*Rendering, error) {
	order, err := Order(c.Modules)
	if err != nil {
		return nil, err
	}
	facts, err := t.Facts.values()
	if err != nil {
		return nil, err
	}
	inManagement, err := t.Facts.inManagement(t.ManagementImages).values()
	if err != nil {
		return nil, err
	}
	r := &renderer{
		content: c, target: t, budget: boundedtemplate.NewBudget(),
		byName: map[string]*addonsv1.Module{}, state: map[string]*Module{},
	}
	for i := range c.Modules {
		r.byName[c.Modules[i].Name] = &c.Modules[i]
	}
	out := &Rendering{}
	for _, name := range order {
		if r.facts = facts; !r.byName[name].InWorkloadCluster() {
			r.facts = inManagement
		}
		m, err := r.module(r.byName[name])
		if err != nil {
			return nil, fmt.Errorf("module %q: %w", name, err)
		}
		r.state[name] = m
		out.Modules = append(out.Modules, *m)
	}
	return out, nil
}

// renderer renders one content for one Cluster.
type renderer struct {
	content Content
	target  Target
	// facts are the facts of the module that is being rendered.
	facts map[string]any
	// budget limits all templates of the content together.
	budget *boundedtemplate.Budget
	byName map[string]*addonsv1.Module
	// state contains the modules rendered so far.
	state map[string]*Module
}

// module renders one module, after its dependencies.
func (r *renderer) module(m *addonsv1.Module) (*Module, error) {
	out := &Module{Name: m.Name, Chart: m.Chart, Keep: m.Remains(), InWorkloadCluster: m.InWorkloadCluster()}
	out.Needs = r.needs(m)
	if m.When != "" {
		on, err := evaluate(m.When, r.facts)
		if err != nil {
			return nil, fmt.Errorf("when: %w", err)
		}
		if !on {
			out.Off = true
			return out, nil
		}
	}
	fits, err := Fits(r.target.Facts.Kubernetes.Version, m.Kubernetes)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	if !fits {
		out.Unsupported = fmt.Sprintf("It supports Kubernetes %s, and the Cluster has %s", m.Kubernetes, r.target.Facts.Kubernetes.Version)
		return out, nil
	}
	if err := r.content.checkSource(m); err != nil {
		return nil, err
	}
	native := r.dependencies(m, out)
	var ref addonsv1.SourceReference
	ref, out.Source = r.source(m)
	if m.Chart != nil {
		out.Object, err = r.helmRelease(m, ref, native)
	} else {
		out.Object, err = r.kustomization(m, ref, native, out)
	}
	if err != nil {
		return nil, err
	}
	out.Object.SetAnnotations(r.annotations(out))
	return out, nil
}

// needs returns the enabled modules that a module depends on. If a dependency
// is disabled, the module depends on its dependencies instead, so that the
// order stays.
func (r *renderer) needs(m *addonsv1.Module) []string {
	var out []string
	for _, name := range m.DependsOn {
		enabled := []string{name}
		if r.state[name].Off {
			enabled = r.state[name].Needs
		}
		for _, name := range enabled {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// dependencies splits the dependencies of a module into those that Flux waits
// for, of which it returns the object names, and those that the controller
// waits for.
func (r *renderer) dependencies(m *addonsv1.Module, out *Module) []string {
	var native []string
	for _, name := range out.Needs {
		if r.state[name].Object != nil && (r.byName[name].Chart != nil) == (m.Chart != nil) {
			native = append(native, ObjectName(r.target.Name, r.target.displayName(), name))
		} else {
			out.After = append(out.After, name)
		}
	}
	return native
}

// maxName is the maximum length of names, so that they are valid as label
// values.
const maxName = 63

// shardLabel is the label that assigns objects to Flux controllers.
const shardLabel = "sharding.fluxcd.io/key"
