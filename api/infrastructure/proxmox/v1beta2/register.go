package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// AddToScheme adds the kinds in this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(infrav1.GroupVersion,
		&NovaProxmoxCluster{}, &NovaProxmoxClusterList{},
		&NovaProxmoxClusterTemplate{}, &NovaProxmoxClusterTemplateList{},
		&NovaProxmoxIdentity{}, &NovaProxmoxIdentityList{},
		&NovaProxmoxMachine{}, &NovaProxmoxMachineList{},
		&NovaProxmoxMachineTemplate{}, &NovaProxmoxMachineTemplateList{},
	)
	metav1.AddToGroupVersion(s, infrav1.GroupVersion)
	return nil
}
