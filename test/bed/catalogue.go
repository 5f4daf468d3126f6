package bed

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules/catalogue"
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
	for _, name := range []string{"priority-classes", "nova-dns", "coredns"} {
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
func (b *Bed) CatalogueSet(namespace, tag string) (*addonsv1.NovaModuleSet, error) {
	base, err := catalogue.Set(catalogue.Base)
	if err != nil {
		return nil, fmt.Errorf("reading catalogue: %w", err)
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
	for _, m := range base.Spec.Modules {
		if !slices.Contains(runnable, m.Name) {
			continue
		}
		m.DependsOn = slices.DeleteFunc(m.DependsOn, func(name string) bool { return !slices.Contains(runnable, name) })
		set.Spec.Modules = append(set.Spec.Modules, m)
	}
	return set, nil
}
