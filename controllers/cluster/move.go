package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// The secretProtector also makes clusterctl move the credentials. clusterctl moves a Secret with its
// label for moves, and then deletes it in the source. The Secret of an identity must stay there for
// clusters of other namespaces, so it has no label: clusterctl copies a Secret that a cluster-scoped
// object owns.

// ensureMoves applies the label and the owner references that make clusterctl move or copy the Secret,
// and reports whether it sent a request. It owns only these fields, so it never removes a label or an
// owner that another client has set.
func (k *secretProtector[C]) ensureMoves(ctx context.Context, secret *metav1.PartialObjectMetadata, labeled bool) (bool, error) {
	owners, err := k.mapper.owners(ctx, secret)
	if err != nil {
		return false, err
	}
	if owns(secret, k.manager, labeled, owners) {
		return false, nil
	}
	desired := &unstructured.Unstructured{}
	desired.SetGroupVersionKind(secret.GroupVersionKind())
	desired.SetNamespace(secret.Namespace)
	desired.SetName(secret.Name)
	desired.SetUID(secret.UID) // a deleted Secret is not created again
	if labeled {
		// The value has no meaning to clusterctl: keep the value of another client.
		desired.SetLabels(map[string]string{clusterctlv1.ClusterctlMoveLabel: secret.Labels[clusterctlv1.ClusterctlMoveLabel]})
	}
	if len(owners) > 0 {
		desired.SetOwnerReferences(owners)
	}
	err = k.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(k.manager), client.ForceOwnership)
	if err != nil {
		return false, fmt.Errorf("applying label and owners of Secret: %w", err)
	}
	return true, nil
}

// owns reports whether a field manager owns the label and these owner references, and no others.
func owns(secret *metav1.PartialObjectMetadata, manager string, labeled bool, owners []metav1.OwnerReference) bool {
	fields := ""
	for _, entry := range secret.ManagedFields {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.FieldsV1 != nil {
			fields = entry.FieldsV1.GetRawString()
		}
	}
	return strings.Contains(fields, `"f:`+clusterctlv1.ClusterctlMoveLabel+`"`) == labeled &&
		strings.Count(fields, `"k:{`) == len(owners) &&
		!slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return !strings.Contains(fields, string(o.UID)) })
}

// owners returns a reference to each identity that names a Secret. It also returns existing references
// to identities that are deleted: without them, Kubernetes would not delete the Secret.
func (u *credentialsMapper[C]) owners(ctx context.Context, secret client.Object) ([]metav1.OwnerReference, error) {
	if u.kind == "" || secret.GetNamespace() != u.namespace {
		return nil, nil
	}
	identities, err := u.allIdentities(ctx)
	if err != nil {
		return nil, err
	}
	var owners []metav1.OwnerReference
	exists := map[types.UID]bool{}
	for _, i := range identities {
		exists[i.GetUID()] = true
		if i.Common().CredentialsSecretRef.Name == secret.GetName() {
			owners = append(owners, metav1.OwnerReference{
				APIVersion: infrav1.GroupVersion.String(), Kind: u.kind, Name: i.GetName(), UID: i.GetUID(),
			})
		}
	}
	for _, o := range secret.GetOwnerReferences() {
		if o.APIVersion == infrav1.GroupVersion.String() && o.Kind == u.kind && !exists[o.UID] {
			owners = append(owners, o)
		}
	}
	return owners, nil
}
