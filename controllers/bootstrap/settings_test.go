package bootstrap

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// A kubelet is not newer than any API server.
func TestIsAhead(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, of string
		versions   []string
		want       bool
	}{
		"Same":      {reason: "all have the version", of: "v1.36.3", versions: []string{"v1.36.3"}},
		"Behind":    {reason: "the control plane comes first", of: "v1.36.3", versions: []string{"v1.37.0"}},
		"Minor":     {reason: "the control plane has not been upgraded", of: "v1.37.0", versions: []string{"v1.36.3"}, want: true},
		"Patch":     {reason: "as with a minor version", of: "v1.36.5", versions: []string{"v1.36.3"}, want: true},
		"Oldest":    {reason: "it is being upgraded", of: "v1.37.0", versions: []string{"v1.36.3", "v1.37.0"}, want: true},
		"NotRead":   {reason: "no API server has been read", of: "v1.36.3", want: true},
		"Malformed": {reason: "it cannot be compared", of: "v1.36.3", versions: []string{"x"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			controlPlane := &controlplanev1.NovaControlPlane{}
			for _, version := range tc.versions {
				controlPlane.Status.Versions = append(controlPlane.Status.Versions, clusterv1.StatusVersion{Version: version, Replicas: 1})
			}
			if got := isAhead(tc.of, controlPlane); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}

// The programs are those of the platform that nodes have: that of the NovaConfig if it
// is set.
func TestPrograms(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, controlplanev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	platformOf := func(version string) bootstrapv1.PlatformSpec {
		return bootstrapv1.PlatformSpec{KubernetesPrograms: []bootstrapv1.KubernetesProgramsSpec{{Version: version}}}
	}
	cluster, controlPlane := &clusterv1.Cluster{}, &controlplanev1.NovaControlPlane{}
	cluster.Namespace, cluster.Name, controlPlane.Namespace, controlPlane.Name = "tenants", "blue", "tenants", "blue-cp"
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "NovaControlPlane", Name: "blue-cp"}
	controlPlane.Spec.Platform = platformOf("v1.36.5")
	r := &Reconciler{APIReader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, controlPlane).Build()}
	for want, config := range map[string]*bootstrapv1.NovaConfigSpec{"v1.36.5": {}, "v1.37.0": {Platform: platformOf("v1.37.0")}} {
		found, err := r.Programs(t.Context(), client.ObjectKeyFromObject(cluster), config)
		if err != nil || len(found) != 1 || found[0].Version != want {
			t.Errorf("%v, want %s, err = %v", found, want, err)
		}
	}
	if _, err := r.Programs(t.Context(), client.ObjectKey{Namespace: "tenants", Name: "red"}, &bootstrapv1.NovaConfigSpec{}); err == nil {
		t.Error("programs of a cluster that does not exist")
	}
}
