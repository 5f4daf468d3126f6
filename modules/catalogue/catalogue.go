package catalogue

import (
	"embed"
	"fmt"
	"io/fs"
	"path"

	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// groups contains the modules of each set, and the set without modules in
// set.yaml.
//
//go:embed groups
var groups embed.FS

// Names of the sets that code refers to.
const (
	// Base is the set for every Nova cluster.
	Base = "base"
	// Management is the set that runs in the management cluster for each Nova
	// cluster.
	Management = "management"
)

// Names returns the names of all sets, which are the folders of groups, sorted.
func Names() []string {
	folders, err := fs.ReadDir(groups, "groups")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	out := make([]string, 0, len(folders))
	for _, folder := range folders {
		out = append(out, folder.Name())
	}
	return out
}

// frame is the file of a group with the set without its modules.
const frame = "set.yaml"

// Set composes a set. It still contains the variables ${NOVA_CATALOGUE} and
// ${NOVA_RELEASE}, which its user replaces.
func Set(name string) (*addonsv1.NovaModuleSet, error) {
	folder := path.Join("groups", name)
	set := &addonsv1.NovaModuleSet{}
	if err := read(path.Join(folder, frame), set); err != nil {
		return nil, err
	}
	files, err := fs.ReadDir(groups, folder)
	if err != nil {
		return nil, fmt.Errorf("listing groups of %s: %w", name, err)
	}
	for _, file := range files {
		if file.Name() == frame {
			continue
		}
		var modules []addonsv1.Module
		if err := read(path.Join(folder, file.Name()), &modules); err != nil {
			return nil, err
		}
		set.Spec.Modules = append(set.Spec.Modules, modules...)
	}
	return set, nil
}

// Manifest returns a set as YAML.
func Manifest(name string) ([]byte, error) {
	set, err := Set(name)
	if err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": set.APIVersion, "kind": set.Kind,
		"metadata": map[string]string{"name": set.Name}, "spec": set.Spec,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding set %s: %w", name, err)
	}
	return data, nil
}

func read(file string, into any) error {
	data, err := groups.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}
