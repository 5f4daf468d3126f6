package e2e

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// unshare gives each class of workers its own machine templates. A spec copies
// the templates of each class into another namespace under the same names, and
// fails if two classes share a template, as the roles of this project do.
func unshare(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	templates := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		templates[object.GetKind()+"/"+object.GetName()] = object
	}
	for _, class := range objects {
		if class.GetKind() != "ClusterClass" {
			continue
		}
		workers, _, err := unstructured.NestedSlice(class.Object, "spec", "workers", "machineDeployments")
		if err != nil {
			return nil, err
		}
		used := map[string]bool{}
		for _, role := range workers {
			role := role.(map[string]any)
			reference := role["infrastructure"].(map[string]any)["templateRef"].(map[string]any)
			name := reference["kind"].(string) + "/" + reference["name"].(string)
			if used[name] {
				own := templates[name].DeepCopy()
				own.SetName(own.GetName() + "-" + role["class"].(string))
				reference["name"] = own.GetName()
				objects = append(objects, own)
			}
			used[name] = true
		}
		if err := unstructured.SetNestedSlice(class.Object, workers, "spec", "workers", "machineDeployments"); err != nil {
			return nil, err
		}
	}
	return objects, nil
}
