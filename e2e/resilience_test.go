package e2e

import (
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/framework"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// resilient removes all owner references and then all finalizers from the
// objects, checks that they are restored, and then that no object is written in
// the steady state. Cluster API's quick start does the same with the kinds of
// its own providers.
func resilient(hypervisor string, topology bool) func(framework.ClusterProxy, string, string) {
	return func(proxy framework.ClusterProxy, namespace, cluster string) {
		h, err := bed.FactsOf(hypervisor)
		Expect(err).NotTo(HaveOccurred())
		own := clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster)
		By("Checking that owner references are resilient")
		framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, cluster, own, owners(h, topology))
		By("Checking that finalizers are resilient")
		framework.ValidateFinalizersResilience(ctx, proxy, namespace, cluster, own, finalizers(h.Kinds, topology))
		By("Checking that resourceVersions are stable")
		framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
			ClusterProxy: proxy, Namespace: namespace, OwnerGraphFilterFunction: own,
			WaitToBecomeStable: config().GetIntervals("default", "wait-resource-versions-become-stable"),
			WaitToRemainStable: config().GetIntervals("default", "wait-resource-versions-remain-stable"),
		})
	}
}

type assertion = func(types.NamespacedName, []metav1.OwnerReference) error

// owners are the expected owners of objects of each kind.
func owners(h bed.Facts, topology bool) map[string]assertion {
	core := clusterv1.GroupVersion.String()
	owner := func(version, kind string, controller bool) metav1.OwnerReference {
		reference := metav1.OwnerReference{APIVersion: version, Kind: kind}
		if controller {
			reference.Controller = ptr.To(true)
		}
		return reference
	}
	one := func(possible ...metav1.OwnerReference) assertion {
		return func(_ types.NamespacedName, given []metav1.OwnerReference) error {
			lists := make([][]metav1.OwnerReference, len(possible))
			for i := range possible {
				lists[i] = []metav1.OwnerReference{possible[i]}
			}
			return framework.HasOneOfExactOwners(given, lists...)
		}
	}
	// The Cluster also controls objects of its topology.
	cluster, class := owner(core, "Cluster", false), owner(core, "ClusterClass", false)
	whole := owner(core, "Cluster", topology)
	plane := owner(controlplanev1.GroupVersion.String(), "NovaControlPlane", true)
	secrets := one(plane, owner(bootstrapv1.GroupVersion.String(), "NovaConfig", true))
	all := maps.Clone(framework.CoreOwnerReferenceAssertion)
	maps.Copy(all, map[string]assertion{
		"Machine":                   one(owner(core, "MachineSet", true), plane),
		"NovaControlPlane":          one(whole),
		"NovaControlPlaneTemplate":  one(class),
		"NovaConfig":                one(owner(core, "Machine", true)),
		"NovaConfigTemplate":        one(cluster, class),
		h.Kinds + "Cluster":         one(whole),
		h.Kinds + "ClusterTemplate": one(class),
		h.Kinds + "Machine":         one(owner(core, "Machine", true)),
		h.Kinds + "MachineTemplate": one(cluster, class),
		"Secret": func(name types.NamespacedName, given []metav1.OwnerReference) error {
			if name.Name == h.CredentialsSecret { // a person's
				return framework.HasExactOwners(given)
			}
			return secrets(name, given)
		},
		"ConfigMap": one(cluster),
	})
	return all
}

// finalizers are the expected finalizers of each kind.
func finalizers(kinds string, topology bool) map[string]func(types.NamespacedName) []string {
	is := func(finalizers ...string) func(types.NamespacedName) []string {
		return func(types.NamespacedName) []string { return finalizers }
	}
	all := maps.Clone(framework.CoreFinalizersAssertionWithLegacyClusters)
	if topology {
		all = maps.Clone(framework.CoreFinalizersAssertionWithClassyClusters)
	}
	maps.Copy(all, map[string]func(types.NamespacedName) []string{
		"NovaControlPlane": is(controlplanev1.Finalizer),
		kinds + "Cluster":  is(infrav1.ClusterFinalizer),
		kinds + "Machine":  is(infrav1.MachineFinalizer),
	})
	return all
}
