package bed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// defaulted is a variable of a components file with its default.
var defaulted = regexp.MustCompile(`\$\{([A-Z0-9_]+):?[=-]([^}]*)\}`)

// render builds a kustomization, with its variables as they are.
func render(ctx context.Context, kubectl, dir string) ([]byte, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, kubectl, "kustomize", dir)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w: %s", dir, err, errs.String())
	}
	return out, nil
}

// resolve gives the variables of components their values, or else their
// defaults, as clusterctl does.
func resolve(components []byte, variables map[string]string) []byte {
	return defaulted.ReplaceAllFunc(components, func(variable []byte) []byte {
		parts := defaulted.FindSubmatch(variable)
		if value, set := variables[string(parts[1])]; set {
			return []byte(value)
		}
		return parts[2]
	})
}

// parse splits YAML documents into objects.
func parse(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &object.Object); err != nil {
			return nil, fmt.Errorf("parsing manifests: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
