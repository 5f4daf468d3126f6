package modules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// Claims returns the objects of Flux that a content has in a workload cluster,
// with the fields of their places only. Nothing is rendered for it, so a content
// that is invalid, or that cannot be rendered for the Cluster, has the same
// claims after it is corrected. A module whose when cannot be evaluated counts
// as enabled, as each does that has a when if the target has no facts, and so does one that does not support the Kubernetes version.
func Claims(c Content, t Target) ([]client.Object, error) {
	var facts map[string]any
	if t.Facts != nil {
		var err error
		if facts, err = t.Facts.values(); err != nil {
			return nil, err
		}
	}
	r := &renderer{content: c, target: t}
	var out []client.Object
	for i := range c.Modules {
		m := &c.Modules[i]
		if on, err := evaluate(cmp.Or(m.When, "true"), facts); !m.InWorkloadCluster() || err == nil && !on {
			continue
		}
		switch {
		case m.Chart != nil:
			out = append(out, &helmv2.HelmRelease{Spec: helmv2.HelmReleaseSpec{
				ReleaseName: m.Name, StorageNamespace: releaseNamespace(m), KubeConfig: r.kubeConfig(m),
			}})
		case c.checkSource(m) == nil:
			out = append(out, &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{addonsv1.PlaceAnnotation: c.place(m)},
			}})
		}
	}
	return out, nil
}

// releaseNamespace is the namespace of a Helm release in the workload cluster.
func releaseNamespace(m *addonsv1.Module) string {
	return cmp.Or(m.TargetNamespace, metav1.NamespaceDefault)
}

// place identifies the objects of a path. Those of another release of the
// source have the same names. The variables are compared before they are
// rendered, so that a change of facts does not change the place.
func (c Content) place(m *addonsv1.Module) string {
	s := c.sourceOf(m)
	data, err := json.Marshal([]any{
		cmp.Or(s.Git.URL, s.OCI.URL, strings.Join([]string{string(s.Ref.Kind), s.Ref.Namespace, s.Ref.Name}, "/")),
		path.Clean("/" + m.Kustomize.Path), m.TargetNamespace, m.Location, m.Kustomize.Substitute, m.Kustomize.SubstituteFrom,
	})
	if err != nil {
		// All of these are texts.
		data = fmt.Appendf(nil, "%v %v", s, m.Name)
	}
	return digest(data)
}
