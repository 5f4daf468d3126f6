package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of the kinds in this package.
	GroupVersion = schema.GroupVersion{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds in this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NovaControlPlane{}, &NovaControlPlaneList{},
		&NovaControlPlaneTemplate{}, &NovaControlPlaneTemplateList{},
		&NovaEtcdRestore{}, &NovaEtcdRestoreList{},
		&NovaStarVaultIdentity{}, &NovaStarVaultIdentityList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
