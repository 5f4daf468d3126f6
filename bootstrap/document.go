package bootstrap

import (
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// document is one of kubeadm's configuration documents.
type document struct {
	kind    string
	content map[string]any
}

func newDocument(apiVersion, kind string, content map[string]any) document {
	if content == nil {
		content = map[string]any{}
	}
	content["apiVersion"], content["kind"] = apiVersion, kind
	return document{kind: kind, content: content}
}

// patch merges the user's patch of the document's kind into it.
func (d *document) patch(patches []bootstrapv1.ConfigPatch) error {
	for _, p := range patches {
		if p.Kind != d.kind {
			continue
		}
		field := configPatchField(p)
		patch, err := toObject(field, p.Patch)
		if err != nil {
			return err
		}
		original, err := json.Marshal(d.content)
		if err != nil {
			return fmt.Errorf("writing %s: %w", d.kind, err)
		}
		merged, err := jsonpatch.MergePatch(original, patch)
		if err != nil {
			return renderErrorf(field, "cannot be merged: %s", err)
		}
		d.content = map[string]any{}
		if err := json.Unmarshal(merged, &d.content); err != nil {
			return fmt.Errorf("reading patched %s: %w", d.kind, err)
		}
		if d.content["kind"] != d.kind {
			return renderErrorf(field, "must not change the document's kind")
		}
	}
	return nil
}

func (d *document) marshal() ([]byte, error) {
	out, err := yaml.Marshal(d.content)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", d.kind, err)
	}
	return out, nil
}

func addList(content map[string]any, key string, values []string) {
	if len(values) > 0 {
		content[key] = strings.Join(values, ",")
	}
}

func configPatchField(p bootstrapv1.ConfigPatch) string {
	return fmt.Sprintf("spec.kubeadm.configPatches[%s]", p.Kind)
}

// toObject converts a patch to JSON and checks that it is an object.
func toObject(field, text string) ([]byte, error) {
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, renderErrorf(field, "is not YAML or JSON: %s", yamlProblem(err))
	}
	object := map[string]any{}
	if err := json.Unmarshal(content, &object); err != nil || object == nil {
		return nil, renderErrorf(field, "must be an object with fields of %s", strings.TrimSuffix(strings.TrimPrefix(field, "spec.kubeadm.configPatches["), "]"))
	}
	return content, nil
}

func yamlProblem(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
}

func addEnvs(content map[string]any, envs []bootstrapv1.EnvVar) {
	list := make([]any, 0, len(envs))
	for _, e := range envs {
		list = append(list, map[string]any{"name": e.Name, "value": ptr.Deref(e.Value, "")})
	}
	if len(list) > 0 {
		content["extraEnvs"] = list
	}
}
