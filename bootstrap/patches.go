package bootstrap

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// Kinds of kubeadm's configuration documents.
const (
	// kubeadm reads InitKind and KubeProxyKind only on init.
	InitKind      = "InitConfiguration"
	KubeProxyKind = "KubeProxyConfiguration"
	// kubeletKind is the only kind whose patch also applies to a joining
	// machine.
	kubeletKind = "KubeletConfiguration"
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

// skipPhases returns the phases that kubeadm's configuration skips. The script
// repeats them on the command line, because the flag overrides the document.
func skipPhases(in *Input) ([]string, error) {
	documents, err := kubeadmDocuments(in)
	if err != nil {
		return nil, err
	}
	list, isList := documents[0].content["skipPhases"].([]any)
	if !isList {
		return nil, nil
	}
	phases := make([]string, 0, len(list))
	for _, phase := range list {
		phases = append(phases, fmt.Sprint(phase))
	}
	return phases, nil
}

// kubeletPatch returns the kubelet settings of this machine only, or nothing. A
// joining machine gets its kubelet's settings from the cluster, so the user's
// patch of KubeletConfiguration is applied as a kubeadm patch. Our settings
// must not be stored in the cluster's configuration, as other machines may lack
// the file; the user's settings take precedence.
func kubeletPatch(in *Input) (map[string]json.RawMessage, error) {
	patch := map[string]json.RawMessage{}
	if len(in.Platform.DNS.Nodes.Servers) > 0 {
		patch["resolvConf"] = json.RawMessage(`"` + resolvConf + `"`)
	} else if in.Mode == Init {
		return patch, nil
	}
	for _, p := range in.Spec.Kubeadm.ConfigPatches {
		if p.Kind != kubeletKind {
			continue
		}
		content, err := toObject(configPatchField(p), p.Patch)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(content, &patch); err != nil {
			return nil, fmt.Errorf("reading patch of %s: %w", p.Kind, err)
		}
	}
	return patch, nil
}

// patchFiles are the patches that kubeadm applies to the components it deploys.
func patchFiles(in *Input) ([]writeFile, error) {
	var files []writeFile
	kubelet, err := kubeletPatch(in)
	if err != nil {
		return nil, err
	}
	if len(kubelet) > 0 {
		content, err := json.Marshal(kubelet)
		if err != nil {
			return nil, fmt.Errorf("writing patch of %s: %w", kubeletKind, err)
		}
		files = append(files, newFile(path.Join(patchesDir, "kubeletconfiguration+merge.json"), "0600", append(content, '\n')))
	}
	for i, p := range in.Spec.Kubeadm.Patches {
		kind := p.Type
		if kind == "" {
			kind = "strategic"
		}
		content, err := yaml.YAMLToJSON([]byte(p.Patch))
		if err != nil {
			return nil, renderErrorf(fmt.Sprintf("spec.kubeadm.patches[%d]", i), "is not YAML or JSON: %s", yamlProblem(err))
		}
		name := fmt.Sprintf("%s%02d+%s.json", p.Target, i, kind)
		files = append(files, newFile(path.Join(patchesDir, name), "0600", append(content, '\n')))
	}
	return files, nil
}

// addPatches sets the folder of patches, if there are any.
func addPatches(in *Input, content map[string]any) {
	files, err := patchFiles(in)
	if err != nil || len(files) == 0 {
		return // a malformed patch is reported where its file is written
	}
	content["patches"] = map[string]any{"directory": patchesDir}
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
