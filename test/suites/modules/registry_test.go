package modules

import (
	"context"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

const (
	pushed   = "pushed"
	pushedNS = "pushed"
)

// push pushes a version of a chart with a ConfigMap to the OCI registry, and returns its digest.
func push(ctx context.Context, version, content string) string {
	GinkgoHelper()
	digest, err := b.PushChart(ctx, pushed, version, map[string]string{
		"templates/all.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {content: " + content + "}\n",
	})
	Expect(err).NotTo(HaveOccurred())
	return digest
}

// ociSets returns a set with the chart at a version and at a range of versions, and a set with the
// artifact of a digest.
func ociSets(namespace, digest string) (byVersion, byDigest *addonsv1.NovaModuleSet) {
	access := addonsv1.Access{IntervalSeconds: 10}
	chart := func(name, chart, version string) addonsv1.Module {
		return addonsv1.Module{Name: name, TargetNamespace: pushedNS, TimeoutSeconds: 60, Chart: &addonsv1.Chart{Name: chart, Version: version}}
	}
	of := func(name string, source addonsv1.Source, release addonsv1.Release, modules ...addonsv1.Module) *addonsv1.NovaModuleSet {
		source.Name = "registry"
		return &addonsv1.NovaModuleSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: addonsv1.NovaModuleSetSpec{
				ClusterSelector: &metav1.LabelSelector{}, IntervalSeconds: 10,
				Sources: []addonsv1.Source{source}, Release: release, Modules: modules, Removal: addonsv1.Removal{TimeoutSeconds: 20},
			},
		}
	}
	byVersion = of("versions", addonsv1.Source{Helm: addonsv1.HelmSource{Access: access, URL: b.OCIChartsURL(), Insecure: ptr.To(true)}}, addonsv1.Release{},
		chart("pinned", pushed, "1.0.0"), chart("ranged", pushed, ">=1.0.0 <2.0.0"))
	byDigest = of("digest", addonsv1.Source{OCI: addonsv1.OCISource{Access: access, URL: b.OCIChartsURL() + "/" + pushed, Insecure: ptr.To(true)}}, addonsv1.Release{Digest: digest},
		chart("fixed", "", ""))
	return byVersion, byDigest
}

// movedTag reports whether Flux has read the tag 1.0.0 with another digest.
func movedTag(ctx context.Context, namespace, digest string) func() bool {
	return func() bool {
		all := &sourcev1.OCIRepositoryList{}
		Expect(b.Client.List(ctx, all, client.InNamespace(namespace))).To(Succeed())
		for i := range all.Items {
			ref, artifact := all.Items[i].Spec.Reference, all.Items[i].Status.Artifact
			if ref != nil && ref.Tag == "1.0.0" && artifact != nil {
				return !strings.Contains(artifact.Revision, digest)
			}
		}
		return false
	}
}
