package bed

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules/catalogue"
	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// catalogueRepository is the name of the Git repository with the catalogue's
// own manifests.
const catalogueRepository = "catalogue"

// runnable are the modules of the catalogue's base set whose images hosts
// have.
var runnable = []string{"priority-classes", "nova-dns", "nova-dns-published", "coredns"}

// PublishCatalogue publishes the catalogue's own manifests under a tag.
func (b *Bed) PublishCatalogue(ctx context.Context, tag string) error {
	root := os.DirFS(filepath.Join(tools.Root(), "modules", "catalogue"))
	files := map[string]string{}
	for _, name := range []string{"priority-classes", "nova-dns", "coredns", "issuer", "metallb-pool"} {
		err := fs.WalkDir(root, name, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := fs.ReadFile(root, path)
			files[path] = string(data)
			return err
		})
		if err != nil {
			return fmt.Errorf("reading catalogue: %w", err)
		}
	}
	return b.Publish(ctx, catalogueRepository, tag, files)
}

// CatalogueSet returns the part of the catalog's base set that can run on
// hosts, from the bed's own Git server. It selects all Clusters of a namespace.
// The programs of further modules must be in the images of the bed, and their
// charts are published here.
func (b *Bed) CatalogueSet(ctx context.Context, namespace, tag string, further ...addons.Addon) (*addonsv1.NovaModuleSet, error) {
	all, err := catalogueModules()
	if err != nil {
		return nil, err
	}
	set := &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: catalogue.Base},
		Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{},
			IntervalSeconds: 10,
			Sources: []addonsv1.Source{{Name: "nova", Git: addonsv1.GitSource{
				URL: b.GitURL(catalogueRepository), Access: addonsv1.Access{IntervalSeconds: 10},
			}}},
			Release: addonsv1.Release{Tag: tag},
		},
	}
	charts := map[string]addons.Chart{}
	for _, a := range further {
		charts[a.Module] = a.Chart
		if a.Chart.Name == "" {
			continue
		}
		files, err := a.Chart.Files(ctx)
		if err != nil {
			return nil, err
		}
		if err := b.PublishChart(a.Chart.Name, a.Chart.Version, files); err != nil {
			return nil, err
		}
	}
	if len(further) > 0 {
		set.Spec.Sources = append(set.Spec.Sources, addonsv1.Source{Name: "charts", Helm: addonsv1.HelmSource{
			URL: b.ChartsURL(), Access: addonsv1.Access{IntervalSeconds: 10},
		}})
	}
	var found []string
	runs := func(name string) bool {
		_, ok := charts[name]
		return ok || slices.Contains(runnable, name)
	}
	for _, m := range all {
		if !runs(m.Name) {
			continue
		}
		if chart, ok := charts[m.Name]; ok {
			if err := useChart(&m, chart); err != nil {
				return nil, err
			}
			found = append(found, m.Name)
		}
		m.DependsOn = slices.DeleteFunc(m.DependsOn, func(name string) bool { return !runs(name) })
		set.Spec.Modules = append(set.Spec.Modules, m)
	}
	if len(found) < len(charts) {
		return nil, fmt.Errorf("the catalogue has %v of the modules %v", found, slices.Sorted(maps.Keys(charts)))
	}
	return set, nil
}

// useChart has a module use the version of the chart that is served.
func useChart(m *addonsv1.Module, chart addons.Chart) error {
	if chart.Name == "" && m.Chart == nil {
		return nil
	}
	if m.Chart == nil || m.Chart.Name != chart.Name {
		return fmt.Errorf("module %s of the catalogue has another chart than %q", m.Name, chart.Name)
	}
	m.Chart.Version = chart.Version
	return nil
}

// catalogueModules returns the modules of all sets, in their order.
func catalogueModules() ([]addonsv1.Module, error) {
	var all []addonsv1.Module
	for _, name := range catalogue.Names() {
		set, err := catalogue.Set(name)
		if err != nil {
			return nil, fmt.Errorf("reading catalogue: %w", err)
		}
		all = append(all, set.Spec.Modules...)
	}
	return all, nil
}
