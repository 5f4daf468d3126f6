package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/envsubst"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

// own is the prefix of the charts of Nova's own, which are not public.
const own = "nova-"

// rendered is a module as it is applied for a site.
type rendered struct {
	set, module string
	// needs are the modules that must be ready before, transitively.
	needs   []string
	objects []*unstructured.Unstructured
	// inManagement means that the module runs in the management cluster.
	inManagement bool
	// chart is the module's chart, empty for a tree.
	chart string
}

// renderer renders each distinct module once.
type renderer struct {
	charts, root string
	cache        map[string][]*unstructured.Unstructured
	trees        map[string][]byte
	// used contains the charts that the catalogue uses.
	used map[string]*chartv2.Chart
	// images are the images of each chart, as rendered for open networks.
	images  map[string]map[string]bool
	missing map[string]bool
	// enabled are the charts that a chart depends on and that a module uses.
	enabled map[string]bool
	// given are values that users set, by module.
	given map[string]map[string]any
	count int
}

func newRenderer(charts, root string, given map[string]map[string]any) *renderer {
	return &renderer{
		charts: charts, root: root, cache: map[string][]*unstructured.Unstructured{}, trees: map[string][]byte{},
		used: map[string]*chartv2.Chart{}, images: map[string]map[string]bool{}, missing: map[string]bool{}, enabled: map[string]bool{},
		given: given,
	}
}

// renderSite renders all modules that are on at a site, in the order of the
// sets, and validates their objects.
func renderSite(r *renderer, s sites.Site, sets []set, report *report) ([]rendered, error) {
	var out []rendered
	needs := map[string][]string{}
	schemas := newSchemas(s.Kubernetes)
	// before are the modules that are ready before those of a set that depends
	// on this one.
	before := map[string][]string{}
	for _, set := range sets {
		var others []string
		for _, name := range set.dependsOn {
			others = append(others, before[name]...)
		}
		before[set.name] = slices.Clone(others)
		rendering, err := s.Render(set.name, set.content)
		if err != nil {
			return nil, fmt.Errorf("rendering for Flux: %w", err)
		}
		for _, m := range rendering.Modules {
			if m.Object == nil {
				continue
			}
			before[set.name] = append(before[set.name], m.Name)
			one := rendered{set: set.name, module: m.Name, inManagement: !m.InWorkloadCluster, needs: slices.Clone(others)}
			for _, name := range m.Needs {
				one.needs = append(append(one.needs, name), needs[name]...)
			}
			needs[m.Name] = one.needs
			if err := r.render(&one, m, s, schemas); err != nil {
				report.add(m.Name, "%v", err)
				continue
			}
			schemas.learn(m.Name, one.objects)
			out = append(out, one)
		}
	}
	for i := range out {
		schemas.validate(&out[i], report)
	}
	return out, nil
}

// render fills in the objects of a module.
func (r *renderer) render(out *rendered, m modules.Module, s sites.Site, schemas *schemas) error {
	switch o := m.Object.(type) {
	case *helmv2.HelmRelease:
		return r.chart(out, m.Chart, o, s, schemas)
	case *kustomizev1.Kustomization:
		return r.tree(out, o)
	}
	return fmt.Errorf("%T is not a known kind of module", m.Object)
}

// chart renders a HelmRelease.
func (r *renderer) chart(out *rendered, spec *addonsv1.Chart, o *helmv2.HelmRelease, s sites.Site, schemas *schemas) error {
	out.chart = filepath.Base(spec.Name)
	name := out.chart + "-" + spec.Version
	if strings.HasPrefix(out.chart, own) {
		return nil
	}
	folder := filepath.Join(r.charts, name)
	if _, err := os.Stat(folder); err != nil {
		r.missing[name] = true
		return nil
	}
	apis := schemas.apis(out.needs)
	key := fmt.Sprintf("%s %s %s %s %s %x", name, o.Spec.ReleaseName, o.Spec.TargetNamespace, s.Kubernetes, strings.Join(apis, " "), sha256.Sum256(o.Spec.Values.Raw))
	if objects, ok := r.cache[key]; ok {
		out.objects = objects
		r.recordImages(name, s, objects)
		return nil
	}
	c, err := loader.LoadDir(folder)
	if err != nil {
		return fmt.Errorf("loading %s: %w", name, err)
	}
	if c.Metadata.Version != spec.Version {
		return fmt.Errorf("the folder %s contains version %s", name, c.Metadata.Version)
	}
	var values map[string]any
	if err := json.Unmarshal(o.Spec.Values.Raw, &values); err != nil {
		return fmt.Errorf("reading values: %w", err)
	}
	values = util.CoalesceTables(values, maps.Clone(r.given[out.module]))
	if r.used[name] == nil {
		if r.used[name], err = loader.LoadDir(folder); err != nil {
			return fmt.Errorf("loading %s: %w", name, err)
		}
	}
	objects, err := renderChart(c, values, o, s.Kubernetes, apis)
	if err != nil {
		return fmt.Errorf("rendering %s: %w", name, err)
	}
	for _, d := range c.Dependencies() {
		r.enabled[name+"/"+d.Name()] = true // Helm has removed the others.
	}
	r.count++
	r.cache[key], out.objects = objects, objects
	r.recordImages(name, s, objects)
	return nil
}

// recordImages records the images of a chart where none is replaced by a mirror.
func (r *renderer) recordImages(name string, s sites.Site, objects []*unstructured.Unstructured) {
	if s.Registry != "" {
		return
	}
	if r.images[name] == nil {
		r.images[name] = map[string]bool{}
	}
	for _, object := range objects {
		for _, image := range imagesOf(object) {
			r.images[name][image] = true
		}
	}
}

// renderChart renders a chart as Helm installs it: the CRDs of its folder crds,
// hooks and objects.
func renderChart(c *chartv2.Chart, values map[string]any, o *helmv2.HelmRelease, version string, apis []string) ([]*unstructured.Unstructured, error) {
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, fmt.Errorf("reading dependencies: %w", err)
	}
	caps := common.DefaultCapabilities.Copy()
	kube, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, fmt.Errorf("reading the version: %w", err)
	}
	caps.KubeVersion = *kube
	caps.APIVersions = append(slices.Clone(caps.APIVersions), apis...)
	if c.Metadata.KubeVersion != "" && !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, version) {
		return nil, fmt.Errorf("the chart is for Kubernetes %s, not %s", c.Metadata.KubeVersion, version)
	}
	input, err := util.ToRenderValues(c, values, common.ReleaseOptions{
		Name: o.Spec.ReleaseName, Namespace: o.Spec.TargetNamespace, Revision: 1, IsInstall: true,
	}, caps)
	if err != nil {
		return nil, fmt.Errorf("checking values: %w", err)
	}
	files, err := engine.Render(c, input)
	if err != nil {
		return nil, fmt.Errorf("executing templates: %w", err)
	}
	for _, crd := range c.CRDObjects() {
		files["crds/"+crd.Filename] = string(crd.File.Data)
	}
	var out []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if base := filepath.Base(name); base == "NOTES.txt" || strings.HasPrefix(base, "_") {
			continue
		}
		for _, text := range separator.Split(files[name], -1) {
			objects, err := objectsOf(text, o.Spec.TargetNamespace)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
			for _, object := range objects {
				withoutOwner[object] = strings.HasPrefix(name, "crds/")
			}
			out = append(out, objects...)
		}
	}
	return out, nil
}

// withoutOwner contains the CRDs of folders crds: Flux writes them for each
// release, and they belong to none.
var withoutOwner = map[*unstructured.Unstructured]bool{}

// separator separates YAML documents as Helm does, also before a comment.
var separator = regexp.MustCompile(`(?:^|\s*\n)---\s*`)

// parsed contains the objects of each text, so that equal objects of different
// sites are one in memory and are validated once.
var parsed = map[string][]*unstructured.Unstructured{}

// objectsOf returns the objects of a YAML document that Helm writes to a
// namespace.
func objectsOf(text, namespace string) ([]*unstructured.Unstructured, error) {
	key := namespace + "\n" + text
	if out, ok := parsed[key]; ok {
		return out, nil
	}
	var content map[string]any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	var out []*unstructured.Unstructured
	if whole := (&unstructured.Unstructured{Object: content}); whole.IsList() {
		list, err := whole.ToList()
		if err != nil {
			return nil, fmt.Errorf("reading a list: %w", err)
		}
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	} else if len(content) > 0 && !strings.HasPrefix(whole.GetAnnotations()["helm.sh/hook"], "test") {
		out = append(out, whole) // Flux runs no tests here.
	}
	for _, o := range out {
		switch {
		case clusterScoped(o):
			o.SetNamespace("") // Some charts set it, and it has no meaning.
		case o.GetNamespace() == "":
			o.SetNamespace(namespace)
		}
	}
	parsed[key] = out
	return out, nil
}

// tree renders a Kustomization as Flux does: Kustomize, then variables.
func (r *renderer) tree(out *rendered, o *kustomizev1.Kustomization) error {
	substitutes, err := json.Marshal(o.Spec.PostBuild.Substitute)
	if err != nil {
		return fmt.Errorf("encoding variables: %w", err)
	}
	key := o.Spec.Path + o.Spec.TargetNamespace + string(substitutes)
	if objects, ok := r.cache[key]; ok {
		out.objects = objects
		return nil
	}
	if r.trees[o.Spec.Path] == nil {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(r.root, "modules", "catalogue", o.Spec.Path))
		if err != nil {
			return fmt.Errorf("building %s: %w", o.Spec.Path, err)
		}
		if r.trees[o.Spec.Path], err = built.AsYaml(); err != nil {
			return fmt.Errorf("building %s: %w", o.Spec.Path, err)
		}
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(r.trees[o.Spec.Path])))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", o.Spec.Path, err)
		}
		text, err := envsubst.Eval(string(document), func(name string) (string, bool) {
			value, ok := o.Spec.PostBuild.Substitute[name]
			return strings.ReplaceAll(value, "\n", ""), ok
		})
		if err != nil {
			return fmt.Errorf("setting the variables of %s: %w", o.Spec.Path, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
			return fmt.Errorf("reading %s: %w", o.Spec.Path, err)
		}
		if o.Spec.TargetNamespace != "" {
			object.SetNamespace(o.Spec.TargetNamespace)
		}
		out.objects = append(out.objects, object)
	}
	r.count++
	r.cache[key] = out.objects
	return nil
}
