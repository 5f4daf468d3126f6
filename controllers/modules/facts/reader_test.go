package facts

import (
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nova-platform/cluster-api-provider-nova/modules"
)

func TestHypervisorKind(t *testing.T) {
	for kind, want := range map[string]string{
		"NovaVSphereCluster": "vsphere", "NovaZVirtCluster": "zvirt", "VSphereCluster": "VSphereCluster", "DockerCluster": "DockerCluster", "": "",
	} {
		if got := hypervisorKind(kind); got != want {
			t.Errorf("hypervisorKind(%s) = %s, want %s", kind, got, want)
		}
	}
}

// The server and its trust are those of the cluster, or those of its identity in the status.
func TestSetServer(t *testing.T) {
	identity := map[string]any{"kind": "NovaVSphereIdentity", "name": "shared"}
	for name, tc := range map[string]struct {
		object map[string]any
		want   modules.HypervisorFacts
		err    string
	}{
		"A thumbprint of the cluster": {
			map[string]any{"spec": map[string]any{"server": "a", "tls": map[string]any{"thumbprint": "AB"}}, "status": map[string]any{"server": "a", "caBundle": "old"}},
			modules.HypervisorFacts{Server: "a", Host: "a", Port: "443", Thumbprint: "AB"}, "",
		},
		"A thumbprint of an identity": {
			map[string]any{"spec": map[string]any{"identityRef": identity}, "status": map[string]any{"server": "b:8443", "thumbprint": "CD"}},
			modules.HypervisorFacts{Server: "b:8443", Host: "b", Port: "8443", Thumbprint: "CD"}, "",
		},
		"CAs of an identity": {
			map[string]any{"spec": map[string]any{"identityRef": identity}, "status": map[string]any{"server": "b", "caBundle": "PEM"}},
			modules.HypervisorFacts{Server: "b", Host: "b", Port: "443", CABundle: "PEM"}, "",
		},
		"An identity that was not read yet": {
			map[string]any{"kind": "NovaVSphereCluster", "metadata": map[string]any{"name": "c"}, "spec": map[string]any{"identityRef": identity}},
			modules.HypervisorFacts{}, "reading infrastructure cluster: NovaVSphereCluster c has no status.server yet",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := modules.HypervisorFacts{}
			err := setServer(&got, &unstructured.Unstructured{Object: tc.object})
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}

// Nodes of MachineDeployments and MachinePools are counted by their desired number, and Machines of
// neither by themselves.
func TestNodes(t *testing.T) {
	labels := func(more ...string) map[string]string {
		out := map[string]string{clusterv1.ClusterNameLabel: "a"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	template := func(role string) clusterv1.MachineTemplateSpec {
		return clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{RolePrefix + role: ""}}}
	}
	machine := func(name, address string, ref clusterv1.ContractVersionedObjectReference, of map[string]string) *clusterv1.Machine {
		return &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: of},
			Spec:       clusterv1.MachineSpec{Bootstrap: clusterv1.Bootstrap{ConfigRef: ref}},
			Status: clusterv1.MachineStatus{
				NodeRef:   clusterv1.MachineNodeReference{Name: name},
				Addresses: []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: address}},
			},
		}
	}
	config := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "NovaConfig",
		"metadata": map[string]any{"namespace": "team", "name": "bare"}, "spec": map[string]any{"roles": []any{"ingress"}},
	}}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "novaconfigs.bootstrap.cluster.x-k8s.io", "labels": map[string]any{"cluster.x-k8s.io/v1beta2": "v1beta2"}},
	}}
	own := clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "NovaConfig", Name: "bare"}
	none := clusterv1.ContractVersionedObjectReference{}
	meta := metav1.ObjectMeta{Namespace: "team", Name: "pool", Labels: labels()}
	objects := []client.Object{
		&clusterv1.MachineDeployment{ObjectMeta: meta, Spec: clusterv1.MachineDeploymentSpec{Replicas: ptr.To[int32](2), Template: template("worker")}},
		&clusterv1.MachinePool{ObjectMeta: meta, Spec: clusterv1.MachinePoolSpec{Replicas: ptr.To[int32](3), Template: template("infra")}},
		machine("of-deployment", "192.0.2.1", none, labels(clusterv1.MachineDeploymentNameLabel, "pool")),
		machine("of-pool", "192.0.2.2", none, labels(clusterv1.MachinePoolNameLabel, "pool")),
		machine("of-control-plane", "192.0.2.3", none, labels(clusterv1.MachineControlPlaneLabel, "")),
		machine("bare", "192.0.2.4", own, labels()),
		machine("bare-worker", "192.0.2.5", none, labels()),
		machine("of-another", "192.0.2.6", none, map[string]string{clusterv1.ClusterNameLabel: "b"}),
		config, crd,
	}
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	r := &Reader{Client: c, Objects: c}
	n, err := r.nodes(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := []int32{n.ControlPlane, n.Infra, n.Ingress, n.Worker, n.Total}, []int32{1, 3, 1, 3, 8}; !slices.Equal(got, want) {
		t.Errorf("nodes of the control plane, infra, ingress, worker and all are %v, want %v", got, want)
	}
	for role, got := range map[string][2][]string{
		"control plane": {n.Addresses.ControlPlane, {"192.0.2.3"}}, "infra": {n.Addresses.Infra, {"192.0.2.2"}},
		"ingress": {n.Addresses.Ingress, {"192.0.2.4"}}, "worker": {n.Addresses.Worker, {"192.0.2.1", "192.0.2.5"}},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("the addresses of role %s are %v, want %v", role, got[0], got[1])
		}
	}
}
