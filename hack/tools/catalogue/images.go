package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nova-platform/cluster-api-provider-nova/test/sites"
)

var (
	// registries are the public registries; a text with an image of one of them
	// is found anywhere in an object.
	registries = regexp.MustCompile(`(?:registry\.k8s\.io|quay\.io|docker\.io|ghcr\.io|gcr\.io|public\.ecr\.aws|docker\.gitea\.com|docker\.elastic\.co|registry\.gitlab\.com|nvcr\.io|` +
		regexp.QuoteMeta(sites.Registry) + `)/[a-z0-9._/-]+(?::[\w.-]+)?(?:@sha256:[0-9a-f]+)?`)
	// imageLine is an image in a file of a ConfigMap.
	imageLine = regexp.MustCompile(`(?m)^\s*(?:-\s*)?image:\s*"?([^"\s{]+)"?\s*$`)
	// plainImage is an argument that is an image without a registry.
	plainImage = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(?:/[a-z0-9._-]+)+:v?\d[\w.-]*$`)
)

// images compares the images of closed networks with the list of images to
// mirror.
type images struct {
	facts *facts
	// open are the images that sites of open networks use, by set, and closed
	// those of closed networks with their module.
	open   map[string]map[string]bool
	closed map[string]string
}

func newImages(f *facts) *images {
	return &images{facts: f, open: map[string]map[string]bool{}, closed: map[string]string{}}
}

// collect takes the images of a site.
func (i *images) collect(s sites.Site, modules []rendered, report *report) {
	for _, m := range modules {
		if i.open[m.set] == nil {
			i.open[m.set] = map[string]bool{}
		}
		for _, o := range m.objects {
			for _, image := range cachedImages(o) {
				_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
				if tag == "" || tag == "latest" {
					report.add(m.module, "%s %s: image %s has no fixed version", o.GetKind(), o.GetName(), image)
				}
				if s.Registry == "" {
					i.open[m.set][image] = true
				} else {
					i.closed[image] = m.module
				}
			}
		}
	}
}

// count returns the number of images in open networks.
func (i *images) count() int {
	all := map[string]bool{}
	for _, images := range i.open {
		maps.Copy(all, images)
	}
	return len(all)
}

// check reports images of closed networks that are not in the registry or not
// in the list, and returns their number.
func (i *images) check(report *report) int {
	mirrored := map[string]bool{}
	for _, image := range slices.Concat(i.facts.AllImages(), i.facts.operatorImages()) {
		mirrored[sites.Registry+"/"+mirrorPath(image)] = true
	}
	out := 0
	for _, image := range slices.Sorted(maps.Keys(i.closed)) {
		if !mirrored[image] && report.add(i.closed[image], "image %s is not in the mirror", image) {
			out++
		}
	}
	return out
}

// mirrorPath returns the path of an image in the registry of a closed network.
func mirrorPath(image string) string {
	_, path, _ := strings.Cut(image, "/")
	// kubeadm expects it there.
	return strings.TrimPrefix(path, "coredns/")
}

var imageCache = map[*unstructured.Unstructured][]string{}

func cachedImages(o *unstructured.Unstructured) []string {
	if out, ok := imageCache[o]; ok {
		return out
	}
	imageCache[o] = imagesOf(o)
	return imageCache[o]
}

// imagesOf returns all images that an object names, without digests.
func imagesOf(o *unstructured.Unstructured) []string {
	if o.GetKind() == "CustomResourceDefinition" {
		return nil
	}
	out := map[string]bool{}
	walk("", o.Object, func(key, text string) {
		switch {
		case key == "image" && text != "":
			out[normalized(text)] = true
		case plainImage.MatchString(text):
			out[normalized(text)] = true
		default:
			for _, found := range registries.FindAllString(text, -1) {
				if strings.Contains(found, ":") {
					out[normalized(found)] = true
				}
			}
			for _, found := range imageLine.FindAllStringSubmatch(text, -1) {
				out[normalized(found[1])] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(out))
}

// walk visits all texts of an object. An object with repository and tag, or with
// repository, image and version, as custom resources have it, is visited as an
// image. Parts of a custom resource that are disabled have no pods.
func walk(key string, value any, visit func(key, text string)) {
	switch v := value.(type) {
	case string:
		// An image may be in an argument after the flag's name, or in JSON.
		if _, after, found := strings.Cut(v, "="); found && plainImage.MatchString(after) {
			v = after
		}
		var inner any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inner) == nil {
			walk(key, inner, visit)
			return
		}
		visit(key, v)
	case map[string]any:
		text := func(name string) string { s, _ := v[name].(string); return s }
		repository, tag, image, version := text("repository"), text("tag"), text("image"), text("version")
		if enabled, set := v["enabled"].(bool); set && !enabled {
			return
		}
		if repository != "" && tag != "" {
			visit("image", repository+":"+tag)
			return
		}
		triple := repository != "" && image != "" && version != ""
		if triple {
			visit("image", repository+"/"+image+":"+version)
		}
		for name, item := range v {
			if !triple || name != "image" {
				walk(name, item, visit)
			}
		}
	case []any:
		for _, item := range v {
			walk("", item, visit)
		}
	}
}

// normalized returns an image with its registry and without its digest.
func normalized(image string) string {
	image, _, _ = strings.Cut(image, "@")
	first, _, found := strings.Cut(image, "/")
	switch {
	case !found:
		return "docker.io/library/" + image
	case strings.ContainsAny(first, ".:") || first == "localhost":
		return image
	default:
		return "docker.io/" + image
	}
}
