package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of the kinds in this package.
	GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds in this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NovaVSphereCluster{}, &NovaVSphereClusterList{},
		&NovaVSphereClusterTemplate{}, &NovaVSphereClusterTemplateList{},
		&NovaVSphereIdentity{}, &NovaVSphereIdentityList{},
		&NovaVSphereMachine{}, &NovaVSphereMachineList{},
		&NovaVSphereMachineTemplate{}, &NovaVSphereMachineTemplateList{},
		&NovaZVirtCluster{}, &NovaZVirtClusterList{},
		&NovaZVirtClusterTemplate{}, &NovaZVirtClusterTemplateList{},
		&NovaZVirtIdentity{}, &NovaZVirtIdentityList{},
		&NovaZVirtMachine{}, &NovaZVirtMachineList{},
		&NovaZVirtMachineTemplate{}, &NovaZVirtMachineTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
