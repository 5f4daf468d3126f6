package modules

import (
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/boundedtemplate"
)

// Target is a Cluster that gets modules.
type Target struct {
	// Namespace and Name are the Cluster's.
	Namespace, Name string
	// Set is the name of the NovaModuleSet, and Origin its namespace.
	Set, Origin string
	// Revision names the content.
	Revision string
	// Facts are the Cluster's.
	Facts *Facts
	// ManagementImages is the registry that images of modules of the management
	// cluster come from. If not set, each image comes from its own registry.
	ManagementImages string
}

// Rendering is what a content becomes on a Cluster.
type Rendering struct {
	// Sources are the sources to write, before anything else.
	Sources []client.Object
	// Modules are all modules, each after what it depends on.
	Modules []Module
}

// Module is what a module becomes.
type Module struct {
	Name string
	// Object is the HelmRelease or Kustomization. Nil when the module is not
	// to be written now.
	Object client.Object
	// Off is set when the module is switched off here: what is there of it
	// goes.
	Off bool
	// Unfit says why the module does not fit the Cluster's Kubernetes
	// version. What is there of it stays as it is.
	Unfit string
	// After are the modules that must be ready before this one is written:
	// those of the other kind, which Flux cannot wait for itself.
	After []string
	// Needs are all the modules that it depends on and that are not off.
	Needs []string
	// Keep leaves the module's objects when it goes.
	Keep bool
	// Tenant tells that it runs on the tenant.
	Tenant bool
}

// Render turns a content into objects of Flux for one Cluster. An error names
// the module and what is wrong with it.
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
	out := &Rendering{Sources: r.sources()}
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
	// budget bounds all templates of the content together.
	budget *boundedtemplate.Budget
	byName map[string]*addonsv1.Module
	// state has the modules rendered so far.
	state map[string]*Module
}

// module renders one module, after those it depends on.
func (r *renderer) module(m *addonsv1.Module) (*Module, error) {
	out := &Module{Name: m.Name, Keep: m.Remains(), Tenant: m.InWorkloadCluster()}
	if m.When != "" {
		on, err := holds(m.When, r.facts)
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
		out.Unfit = fmt.Sprintf("Kubernetes %s is not in %s", r.target.Facts.Kubernetes.Version, m.Kubernetes)
		return out, nil
	}
	native := r.dependencies(m, out)
	if m.Chart != nil {
		out.Object, err = r.helmRelease(m, native)
	} else {
		out.Object, err = r.kustomization(m, native)
	}
	if err != nil {
		return nil, err
	}
	out.Object.SetAnnotations(r.annotations(out))
	return out, nil
}

// dependencies splits what a module depends on into what Flux waits for
// itself, whose object names it returns, and what has to be waited for here.
func (r *renderer) dependencies(m *addonsv1.Module, out *Module) []string {
	var native []string
	for _, name := range m.DependsOn {
		dependency := r.state[name]
		if dependency.Off {
			continue
		}
		out.Needs = append(out.Needs, name)
		if dependency.Object != nil && (r.byName[name].Chart != nil) == (m.Chart != nil) {
			native = append(native, ObjectName(r.target.Name, r.target.title(), name))
		} else {
			out.After = append(out.After, name)
		}
	}
	return native
}

// Title is how a set is called on a Cluster: by its name, with its namespace
// before it when that is not the Cluster's.
func Title(origin, set, namespace string) string {
	if origin == namespace || origin == "" {
		return set
	}
	return origin + "." + set
}

// title is how the set is called here.
func (t Target) title() string { return Title(t.Origin, t.Set, t.Namespace) }

// maxName keeps names short enough to be values of labels.
const maxName = 63

// ObjectName is the name of the Flux object of a module: readable, and cut
// off with a digest where it would be too long.
func ObjectName(cluster, set, module string) string {
	return shortened(strings.Join([]string{cluster, set, module}, "-"))
}

func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := digest([]byte(name))
	return strings.TrimRight(name[:maxName-len(sum)-1], "-.") + "-" + sum
}

// labels are on everything that is written for a Cluster.
func (r *renderer) labels(module string) map[string]string {
	labels := map[string]string{addonsv1.SetLabel: r.target.Set}
	if module != "" {
		labels[addonsv1.ModuleLabel] = module
		labels[addonsv1.ClusterLabel] = r.target.Name
	}
	if r.content.Shard != "" {
		labels[shardLabel] = r.content.Shard
	}
	return labels
}

// shardLabel is the label by which controllers of Flux share objects out.
const shardLabel = "sharding.fluxcd.io/key"

// annotations are what a later removal has to know of a module, when the set
// may know it no more.
func (r *renderer) annotations(m *Module) map[string]string {
	out := map[string]string{
		addonsv1.RevisionAnnotation: r.target.Revision,
		addonsv1.OriginAnnotation:   r.target.Origin,
	}
	if len(m.Needs) > 0 {
		out[addonsv1.NeedsAnnotation] = strings.Join(m.Needs, ",")
	}
	if m.Keep {
		out[addonsv1.KeepAnnotation] = "true"
	}
	return out
}
