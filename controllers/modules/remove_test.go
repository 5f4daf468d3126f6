package modules

import (
	"context"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/modules/flux"
	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

// TestRemovalWithOldCache: the cache does not have the Kustomization yet that depends on a HelmRelease,
// because each kind has its own watch. The HelmRelease must not be deleted first.
func TestRemovalWithOldCache(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{helmv2.AddToScheme, kustomizev1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	cluster, set := key{Namespace: "team", Name: "a"}, key{Namespace: "team", Name: "base"}
	description := func(module, needs string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "team", Name: "a-base-" + module, Finalizers: []string{fluxFinalizer},
			Labels:      map[string]string{addonsv1.ClusterLabel: "a", addonsv1.SetLabel: "base", addonsv1.ModuleLabel: module},
			Annotations: map[string]string{addonsv1.NeedsAnnotation: needs},
		}
	}
	kubeconfig := &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "a-kubeconfig"}}

	for name, remove := range map[string]func(r *ClusterReconciler, d *rolloutTarget) error{
		"all modules": func(r *ClusterReconciler, d *rolloutTarget) error { return r.remove(t.Context(), d, removeModules) },
		"modules that the set does not have any more": func(r *ClusterReconciler, d *rolloutTarget) error {
			d.set = &addonsv1.NovaModuleSet{}
			return r.prune(t.Context(), d, &modules.Rendering{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cni := &helmv2.HelmRelease{ObjectMeta: description("cni", ""), Spec: helmv2.HelmReleaseSpec{KubeConfig: kubeconfig}}
			dns := &kustomizev1.Kustomization{ObjectMeta: description("dns", "cni"), Spec: kustomizev1.KustomizationSpec{KubeConfig: kubeconfig}}
			live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cni, dns).Build()
			old := interceptor.NewClient(live, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, late := list.(*kustomizev1.KustomizationList); late {
					return nil
				}
				return c.List(ctx, list, options...)
			}})
			objects, err := flux.List(t.Context(), old, cluster)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objects[set]).To(HaveLen(1))
			r := &ClusterReconciler{apiReader: live, flux: flux.NewWriter(old)}
			d := &rolloutTarget{scope: &clusterScope{key: cluster}, key: set, objects: objects[set]}

			g.Expect(remove(r, d)).To(Succeed())
			g.Expect(live.Get(t.Context(), client.ObjectKeyFromObject(dns), dns)).To(Succeed())
			g.Expect(dns.DeletionTimestamp.IsZero()).To(BeFalse(), "dns is deleted")
			g.Expect(live.Get(t.Context(), client.ObjectKeyFromObject(cni), cni)).To(Succeed())
			g.Expect(cni.DeletionTimestamp.IsZero()).To(BeTrue(), "cni waits for dns")

			dns.Finalizers = nil
			g.Expect(live.Update(t.Context(), dns)).To(Succeed())
			g.Expect(live.Get(t.Context(), client.ObjectKeyFromObject(dns), dns)).To(MatchError(apierrors.IsNotFound, "not found"))
			g.Expect(remove(r, d)).To(Succeed())
			g.Expect(live.Get(t.Context(), client.ObjectKeyFromObject(cni), cni)).To(Succeed())
			g.Expect(cni.DeletionTimestamp.IsZero()).To(BeFalse(), "cni is deleted after dns")
		})
	}
}
