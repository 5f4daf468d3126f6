package scope

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InfraMetadata reads the metadata of a machine's infrastructure machine.
func (r *Config) InfraMetadata(ctx context.Context, machine *clusterv1.Machine) (*metav1.PartialObjectMetadata, error) {
	ref := machine.Spec.InfrastructureRef
	gvk, err := r.ContractKind(ctx, ref.APIGroup, ref.Kind)
	if err != nil {
		return nil, err
	}
	infra := &metav1.PartialObjectMetadata{}
	infra.SetGroupVersionKind(gvk)
	return infra, r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}, infra)
}

// contracts are the versions of the contract that Cluster API reads, the newest first: some
// providers implement only the former one.
var contracts = []string{clusterv1.GroupVersion.Version, "v1beta1"}

// ContractKind returns the newest version of a kind that implements the newest version of the
// contract, by the labels of its CRD.
func (r *Config) ContractKind(ctx context.Context, group, kind string) (schema.GroupVersionKind, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	name := contract.CalculateCRDName(group, kind)
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			// This error must not be taken for a missing object of that kind.
			return schema.GroupVersionKind{}, fmt.Errorf("CRD %s does not exist, is its provider installed", name)
		}
		return schema.GroupVersionKind{}, fmt.Errorf("reading CRD %s: %w", name, err)
	}
	for _, version := range contracts {
		if versions := crd.Labels[clusterv1.GroupVersion.Group+"/"+version]; versions != "" {
			newest := slices.MaxFunc(strings.Split(versions, "_"), apiversion.CompareKubeAwareVersionStrings)
			return schema.GroupVersionKind{Group: group, Version: newest, Kind: kind}, nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("CRD %s has no label %s/%s: it implements no version of the contract that Cluster API reads",
		name, clusterv1.GroupVersion.Group, strings.Join(contracts, " or "))
}
