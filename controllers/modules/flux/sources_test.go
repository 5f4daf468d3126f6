package flux

import (
	"slices"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// Sources of charts are deleted when no release of any Cluster uses them, and not while a new one waits
// for its first release.
func TestDeleteUnusedSources(t *testing.T) {
	now := time.Now()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{helmv2.AddToScheme, kustomizev1.AddToScheme, sourcev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	meta := func(name, origin string, age time.Duration) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age)),
			Labels: map[string]string{addonsv1.SetLabel: "base"}, Annotations: map[string]string{addonsv1.OriginAnnotation: origin},
		}
	}
	source := func(name, origin string, age time.Duration) client.Object {
		return &sourcev1.OCIRepository{ObjectMeta: meta(name, origin, age)}
	}
	objects := []client.Object{
		source("used", "team", time.Hour), source("pending", "team", time.Hour), source("unused", "team", time.Hour), source("new", "team", time.Second), source("other-set", "platform", time.Hour),
		&sourcev1.HelmRepository{ObjectMeta: meta("unused-helm", "team", time.Hour)},
		&helmv2.HelmRelease{ObjectMeta: meta("a-base-web", "team", time.Hour), Spec: helmv2.HelmReleaseSpec{
			ChartRef: &helmv2.CrossNamespaceSourceReference{Kind: sourcev1.OCIRepositoryKind, Name: "used"},
		}},
	}
	left := func(c client.Client) (names []string) {
		charts, repositories := &sourcev1.OCIRepositoryList{}, &sourcev1.HelmRepositoryList{}
		for _, list := range []client.ObjectList{charts, repositories} {
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		for i := range charts.Items {
			names = append(names, charts.Items[i].Name)
		}
		for i := range repositories.Items {
			names = append(names, repositories.Items[i].Name)
		}
		slices.Sort(names)
		return names
	}
	set := client.ObjectKey{Namespace: "team", Name: "base"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	pending := map[client.ObjectKey]bool{{Namespace: "team", Name: "pending"}: true}
	kept, err := DeleteUnusedSources(t.Context(), c, set, pending, false, now)
	if err != nil || !kept {
		t.Errorf("DeleteUnusedSources() = %t, %v, want true for the new one", kept, err)
	}
	if got, want := left(c), []string{"new", "other-set", "pending", "used"}; !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	if _, err := DeleteUnusedSources(t.Context(), c, set, nil, true, now); err != nil {
		t.Fatal(err)
	}
	if got, want := left(c), []string{"other-set", "used"}; !slices.Equal(got, want) {
		t.Errorf("left of a deleted set are %v, want %v", got, want)
	}
}
