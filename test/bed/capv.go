package bed

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withCAPV replaces the generated objects for vSphere by the kinds of CAPV, if
// the cluster uses them. The template contains all settings that they require,
// under the names of this project.
func withCAPV(objects []*unstructured.Unstructured, c Cluster) error {
	if !c.CAPV {
		return nil
	}
	placement := map[string]any{}
	for _, object := range objects {
		if object.GetKind() == "NovaVSphereCluster" {
			var err error
			if placement, _, err = unstructured.NestedMap(object.Object, "spec", "placement"); err != nil {
				return fmt.Errorf("reading placement of %s: %w", object.GetName(), err)
			}
		}
	}
	for _, object := range objects {
		var err error
		switch object.GetKind() {
		case "NovaVSphereCluster":
			err = capvCluster(object)
		case "NovaVSphereMachineTemplate":
			err = capvTemplate(object, placement)
		case "Cluster":
			err = unstructured.SetNestedField(object.Object, "VSphereCluster", "spec", "infrastructureRef", "kind")
		case "MachineDeployment":
			err = unstructured.SetNestedField(object.Object, "VSphereMachineTemplate", "spec", "template", "spec", "infrastructureRef", "kind")
		case "NovaControlPlane", "KubeadmControlPlane":
			err = unstructured.SetNestedField(object.Object, "VSphereMachineTemplate", "spec", "machineTemplate", "spec", "infrastructureRef", "kind")
		}
		if err != nil {
			return fmt.Errorf("putting CAPV into %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func capvCluster(object *unstructured.Unstructured) error {
	take := taker{object: object.Object}
	spec := map[string]any{
		"controlPlaneEndpoint": take.field("spec", "controlPlaneEndpoint"),
		"server":               take.field("spec", "server"),
		"thumbprint":           take.field("spec", "tls", "thumbprint"),
		"identityRef":          take.field("spec", "identityRef"),
	}
	object.SetKind("VSphereCluster")
	object.Object["spec"] = spec
	return take.err
}

func capvTemplate(object *unstructured.Unstructured, placement map[string]any) error {
	take := taker{object: object.Object}
	machine := func(fields ...string) any {
		return take.field(append([]string{"spec", "template", "spec"}, fields...)...)
	}
	networks, _ := machine("network", "interfaces").([]any)
	devices := make([]any, 0, len(networks))
	for _, network := range networks {
		if network, is := network.(map[string]any); is {
			devices = append(devices, map[string]any{"networkName": network["network"], "dhcp4": true})
		}
	}
	spec := map[string]any{
		"cloneMode": "fullClone",
		"template":  machine("template", "name"),
		"numCPUs":   machine("hardware", "cpus"),
		"memoryMiB": machine("hardware", "memoryMiB"),
		"network":   map[string]any{"devices": devices},
	}
	for _, field := range []string{"datacenter", "resourcePool", "folder", "datastore"} {
		spec[field] = placement[field]
	}
	object.SetKind("VSphereMachineTemplate")
	object.Object["spec"] = map[string]any{"template": map[string]any{"spec": spec}}
	return take.err
}

// taker takes fields that have to be there out of an object.
type taker struct {
	object map[string]any
	err    error
}

func (t *taker) field(fields ...string) any {
	value, found, err := unstructured.NestedFieldCopy(t.object, fields...)
	if err == nil && !found {
		err = fmt.Errorf("no field %v", fields)
	}
	t.err = errors.Join(t.err, err)
	return value
}
