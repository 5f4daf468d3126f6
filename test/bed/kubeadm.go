package bed

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The groups and version of Cluster API's kubeadm providers.
const (
	bootstrapGroup    = "bootstrap.cluster.x-k8s.io"
	controlPlaneGroup = "controlplane.cluster.x-k8s.io"
	kubeadmVersion    = "v1beta2"
)

// withKubeadm replaces generated objects by Cluster API's own kinds, if the
// cluster uses them.
func withKubeadm(objects []*unstructured.Unstructured, c Cluster) error {
	for _, object := range objects {
		var err error
		switch object.GetKind() {
		case "Cluster":
			if c.KubeadmControlPlane && object.GroupVersionKind().Group == "cluster.x-k8s.io" {
				err = unstructured.SetNestedField(object.Object, "KubeadmControlPlane", "spec", "controlPlaneRef", "kind")
			}
		case "NovaControlPlane":
			if c.KubeadmControlPlane {
				err = kubeadmControlPlane(object, c)
			}
		case "MachineDeployment":
			if c.KubeadmWorkers {
				err = unstructured.SetNestedField(object.Object, "KubeadmConfigTemplate", "spec", "template", "spec", "bootstrap", "configRef", "kind")
			}
		case "NovaConfigTemplate":
			if c.KubeadmWorkers {
				err = kubeadmWorkers(object)
			}
		}
		if err != nil {
			return fmt.Errorf("putting kubeadm into %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// kubeadmControlPlane turns a NovaControlPlane into a KubeadmControlPlane of
// the same machines.
func kubeadmControlPlane(object *unstructured.Unstructured, c Cluster) error {
	var errs []error
	spec := map[string]any{}
	for _, field := range []string{"replicas", "version", "machineTemplate"} {
		value, _, err := unstructured.NestedFieldCopy(object.Object, "spec", field)
		spec[field] = value
		errs = append(errs, err)
	}
	object.SetAPIVersion(controlPlaneGroup + "/" + kubeadmVersion)
	object.SetKind("KubeadmControlPlane")
	object.Object["spec"] = spec
	errs = append(errs,
		configure(object, []string{"node.yaml", "kubeadm-config.yaml", "kubeadm-control-plane.yaml"}, c, "spec", "kubeadmConfigSpec"),
		merge(object, "kubeadm-node.yaml", "spec", "kubeadmConfigSpec", "initConfiguration"),
		merge(object, "kubeadm-node.yaml", "spec", "kubeadmConfigSpec", "joinConfiguration"),
	)
	return errors.Join(errs...)
}

// kubeadmWorkers turns a NovaConfigTemplate into a KubeadmConfigTemplate.
func kubeadmWorkers(object *unstructured.Unstructured) error {
	object.SetAPIVersion(bootstrapGroup + "/" + kubeadmVersion)
	object.SetKind("KubeadmConfigTemplate")
	object.Object["spec"] = map[string]any{}
	return errors.Join(
		configure(object, []string{"node.yaml", "kubeadm-config.yaml"}, Cluster{}, "spec", "template", "spec"),
		merge(object, "kubeadm-node.yaml", "spec", "template", "spec", "joinConfiguration"),
	)
}

// configure writes the files and commands of overlays, one after another, into
// a kubeadm configuration. A merge would put one list in the other's place.
func configure(object *unstructured.Unstructured, overlays []string, c Cluster, fields ...string) error {
	var files, commands []any
	for _, name := range overlays {
		data, err := overlay.ReadFile("overlay/" + name)
		if err != nil {
			return err
		}
		var content struct {
			Files              []any `json:"files"`
			PreKubeadmCommands []any `json:"preKubeadmCommands"`
		}
		if err := yaml.Unmarshal(bytes.ReplaceAll(data, []byte("@ENDPOINT@"), []byte(c.Endpoint)), &content); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		files = append(files, content.Files...)
		commands = append(commands, content.PreKubeadmCommands...)
	}
	return unstructured.SetNestedMap(object.Object, map[string]any{"files": files, "preKubeadmCommands": commands}, fields...)
}
