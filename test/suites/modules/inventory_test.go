package modules

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// transient are kinds whose objects Kubernetes itself creates and deletes.
var transient = []string{"Event", "Lease", "CertificateSigningRequest"}

// inventory lists the objects of all kinds of a workload cluster as "kind namespace/name", without
// those that belong to another object, such as the pods of a Deployment.
func inventory(ctx context.Context, c bed.Cluster) ([]string, error) {
	config, err := b.TenantConfig(ctx, c.Key())
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := kinds.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || !slices.Contains(kind.Verbs, "delete") || slices.Contains(transient, kind.Kind) {
				continue
			}
			list, err := objects.Resource(version.WithResource(kind.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				if o := &list.Items[i]; len(o.OwnerReferences) == 0 {
					found = append(found, kind.Kind+" "+o.Namespace+"/"+o.Name)
				}
			}
		}
	}
	return found, nil
}

// added returns the objects that are not in before.
func added(ctx context.Context, c bed.Cluster, before []string) func() ([]string, error) {
	return func() ([]string, error) {
		after, err := inventory(ctx, c)
		return slices.DeleteFunc(after, func(o string) bool { return slices.Contains(before, o) }), err
	}
}
