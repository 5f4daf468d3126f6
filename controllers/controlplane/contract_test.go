package controlplane

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
)

// TestContractKind covers providers that implement only the former version of the
// contract, such as Cluster API's provider for KubeVirt.
func TestContractKind(t *testing.T) {
	for name, test := range map[string]struct {
		labels  map[string]string
		version string
	}{
		"the newest version of the contract":            {map[string]string{"cluster.x-k8s.io/v1beta1": "v1alpha9", "cluster.x-k8s.io/v1beta2": "v1beta1_v1alpha2"}, "v1beta1"},
		"only the former version of the contract":       {map[string]string{"cluster.x-k8s.io/v1beta1": "v1alpha1_v1alpha10_v1alpha2"}, "v1alpha10"},
		"only a version that Cluster API does not read": {map[string]string{"cluster.x-k8s.io/v1alpha4": "v1alpha1"}, ""},
		"no version": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &unstructured.Unstructured{}
			crd.SetAPIVersion("apiextensions.k8s.io/v1")
			crd.SetKind("CustomResourceDefinition")
			crd.SetName("foreignmachines.infrastructure.cluster.x-k8s.io")
			crd.SetLabels(test.labels)
			scheme := runtime.NewScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			r := &observer{Config: &scope.Config{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(crd).Build()}}
			got, err := r.ContractKind(t.Context(), "infrastructure.cluster.x-k8s.io", "ForeignMachine")
			if got.Version != test.version || (err != nil) != (test.version == "") {
				t.Errorf("version %q, error %v, expected version %q", got.Version, err, test.version)
			}
		})
	}
}
