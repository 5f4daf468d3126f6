package inplace

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// updating returns an extension for a machine that is being updated. Requests for
// its Node wait until the channel is closed.
func updating(t *testing.T, node string, answer <-chan struct{}) (e *Extension, update func() *runtimehooksv1.UpdateMachineResponse, workload client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{bootstrapv1.AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := addInfraKinds(scheme)
	machine := &clusterv1.Machine{}
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infraKind.Group, Kind: infraKind.Kind, Name: "blue-1"}
	machine.Namespace, machine.Name, machine.UID = "tenants", "blue-1", "1"
	machine.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	machine.Spec.ClusterName, machine.Spec.Version = "blue", "v1.36.3"
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: "blue-1"}
	machine.Status.NodeRef.Name = node
	cluster, config := &clusterv1.Cluster{}, &bootstrapv1.NovaConfig{}
	cluster.Namespace, cluster.Name, config.Namespace, config.Name = "tenants", "blue", "tenants", "blue-1"
	is := &corev1.Node{}
	is.Name = "blue-1"
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(machine, cluster, config).Build()
	workload = fake.NewClientBuilder().WithScheme(scheme).WithObjects(is).WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		pod, _ := o.(*corev1.Pod)
		return []string{pod.Spec.NodeName}
	}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, waits := o.(*corev1.Node); waits {
				select {
				case <-answer:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
	e = &Extension{
		Client: c, Reader: c, WorkloadClusters: clustercache.NewFakeClusterCache(workload, client.ObjectKeyFromObject(cluster)),
		Settings: func(context.Context, *clusterv1.Cluster, *clusterv1.Machine, *bootstrapv1.NovaConfig, nodeconfig.Hardware) (nodesettings.Settings, error) {
			return nodesettings.Settings{Packed: []byte("packed"), Revision: "abc"}, nil
		},
	}
	return e, func() *runtimehooksv1.UpdateMachineResponse {
		request, response := &runtimehooksv1.UpdateMachineRequest{}, &runtimehooksv1.UpdateMachineResponse{}
		request.Desired.Machine.Namespace, request.Desired.Machine.Name = "tenants", "blue-1"
		e.UpdateMachine(t.Context(), request, response)
		return response
	}, workload
}

// A slow API server of a tenant does not hold the workers of Cluster API, and its
// machine is updated nevertheless.
func TestSlowAPIServer(t *testing.T) {
	answer := make(chan struct{})
	_, update, workload := updating(t, "blue-1", answer)
	started := time.Now()
	got := update()
	if took := time.Since(started); took > 2*answerTimeout || got.Status != runtimehooksv1.ResponseStatusSuccess || got.Message != unreachable || got.RetryAfterSeconds != 15 {
		t.Errorf("%+v after %s", got, took)
	}
	close(answer)
	settings := &corev1.Secret{}
	key := client.ObjectKey{Namespace: nodeconfig.SettingsNamespace, Name: nodeconfig.SettingsName("blue-1")}
	for until := time.Now().Add(hookTimeout); workload.Get(t.Context(), key, settings) != nil; {
		if time.Now().After(until) {
			t.Fatal("the work ended with the request")
		}
		update()
	}
	if got := update(); got.RetryAfterSeconds != 5 || string(settings.Data[nodeconfig.SettingsKey]) != "packed" {
		t.Errorf("%+v, settings %q", got, settings.Data)
	}
}

// If no work of a workload cluster ends within a response, later responses have its
// results.
func TestAlwaysSlowAPIServer(t *testing.T) {
	answer := make(chan struct{})
	e, update, workload := updating(t, "blue-1", answer)
	ended := func() {
		t.Helper()
		answer <- struct{}{}
		// Work that is in progress is joined.
		<-e.updates.DoChan("1/abc", func() (any, error) { return true, nil })
		if _, found := e.results.Load(types.UID("1")); !found {
			t.Fatal("the work has no result")
		}
	}
	if got := update(); got.Message != unreachable {
		t.Errorf("%q, retry after %d s", got.Message, got.RetryAfterSeconds)
	}
	ended()
	if got := update(); !strings.HasPrefix(got.Message, "the host agent has not reported yet") || got.RetryAfterSeconds != 15 {
		t.Errorf("%q, retry after %d s", got.Message, got.RetryAfterSeconds)
	}
	node := &corev1.Node{}
	node.Name = "blue-1"
	node.Status.Conditions = []corev1.NodeCondition{{Type: nodeconfig.ConfiguredCondition, Status: corev1.ConditionTrue, Message: nodeconfig.ReportMessage("abc", "applied")}}
	if err := workload.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	ended()
	if got := update(); got.Status != runtimehooksv1.ResponseStatusSuccess || got.Message != "the settings are applied" || got.RetryAfterSeconds != 0 {
		t.Errorf("%q, retry after %d s", got.Message, got.RetryAfterSeconds)
	}
	// A result counts once, and for its own revision.
	ended()
	e.Settings = func(context.Context, *clusterv1.Cluster, *clusterv1.Machine, *bootstrapv1.NovaConfig, nodeconfig.Hardware) (nodesettings.Settings, error) {
		return nodesettings.Settings{Packed: []byte("other"), Revision: "abd"}, nil
	}
	for range 2 {
		if got := update(); got.Message != unreachable {
			t.Errorf("%q, retry after %d s", got.Message, got.RetryAfterSeconds)
		}
	}
}

// A user of the workload cluster can give the provider ID of a machine to any
// Node. It does not get the settings of the machine.
func TestOtherNode(t *testing.T) {
	answer := make(chan struct{})
	close(answer)
	_, update, workload := updating(t, "blue-2", answer)
	if got := update(); got.RetryAfterSeconds != 5 || got.Message != "the Node that the Machine refers to has another name than the Machine: delete that Node" {
		t.Errorf("%+v", got)
	}
	secrets := &corev1.SecretList{}
	if err := workload.List(t.Context(), secrets); err != nil || len(secrets.Items) > 0 {
		t.Errorf("%d Secrets, err = %v", len(secrets.Items), err)
	}
}

// kubeadm makes the components of a control plane node from the configuration in
// the workload cluster. Until it is that of the settings, the node gets none, and a
// report about them does not count.
func TestConfigurationIsStored(t *testing.T) {
	answer := make(chan struct{})
	close(answer)
	e, update, workload := updating(t, "blue-1", answer)
	rendered := func(ttl string) string {
		return "kubernetesVersion: v1.36.3\napiServer:\n  extraArgs:\n  - name: event-ttl\n    value: " + ttl + "\n"
	}
	settings := e.Settings
	e.Settings = func(ctx context.Context, c *clusterv1.Cluster, m *clusterv1.Machine, config *bootstrapv1.NovaConfig, h nodeconfig.Hardware) (nodesettings.Settings, error) {
		s, err := settings(ctx, c, m, config, h)
		s.Configuration = []byte(rendered("2h"))
		return s, err
	}
	if got := update(); got.Status != runtimehooksv1.ResponseStatusFailure {
		t.Errorf("without a configuration: %s, retry %d: %s", got.Status, got.RetryAfterSeconds, got.Message)
	}
	config := &corev1.ConfigMap{Data: map[string]string{"ClusterConfiguration": rendered("1h")}}
	config.Namespace, config.Name = "kube-system", "kubeadm-config"
	if err := workload.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	if err := workload.Get(t.Context(), client.ObjectKey{Name: "blue-1"}, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: nodeconfig.ConfiguredCondition, Status: corev1.ConditionTrue, Reason: nodeconfig.AppliedReason, Message: nodeconfig.ReportMessage("abc", "the settings are applied"),
	}}
	if err := workload.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for _, former := range []string{rendered("1h"), strings.Replace(rendered("2h"), "v1.36.3", "v1.37.0", 1)} {
		config.Data["ClusterConfiguration"] = former
		if err := workload.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if got := update(); got.RetryAfterSeconds != 5 || got.Message != "waiting for nova-control-plane to store the settings and the version of components in ConfigMap kube-system/kubeadm-config" {
			t.Errorf("with %s: %s, retry %d: %s", former, got.Status, got.RetryAfterSeconds, got.Message)
		}
	}
	config.Data["ClusterConfiguration"] = rendered("2h")
	if err := workload.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if got := update(); got.RetryAfterSeconds != 0 || got.Status != runtimehooksv1.ResponseStatusSuccess {
		t.Errorf("with the configuration of the settings: %s, retry %d: %s", got.Status, got.RetryAfterSeconds, got.Message)
	}
}

// A node gets its settings once its VM has the sizes of its infrastructure machine.
func TestSizes(t *testing.T) {
	answer := make(chan struct{})
	close(answer)
	e, update, _ := updating(t, "blue-1", answer)
	var got nodeconfig.Hardware
	settings := e.Settings
	e.Settings = func(ctx context.Context, c *clusterv1.Cluster, m *clusterv1.Machine, config *bootstrapv1.NovaConfig, h nodeconfig.Hardware) (nodesettings.Settings, error) {
		got = h
		return settings(ctx, c, m, config, h)
	}
	infra := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": infraKind.GroupVersion().String(), "kind": infraKind.Kind, "metadata": map[string]any{"namespace": "tenants", "name": "blue-1"},
		"spec": map[string]any{"hardware": map[string]any{"cpus": int64(4), "memoryMiB": int64(2048)}},
	}}
	if err := e.Client.Create(t.Context(), infra); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, message string
		status          map[string]any
	}{
		{reason: "a move drops the status", message: "waiting until the infrastructure machine reports the sizes of its VM", status: map[string]any{}},
		{
			reason: "the VM is small", message: "waiting for the VM: hardware.cpus is 2 instead of 4",
			status: map[string]any{"resizable": sizes(2, 2048), "conditions": []any{map[string]any{"type": "VirtualMachineSynced", "status": "True", "message": "x"}}},
		},
		{
			reason: "the hypervisor has refused", message: "waiting for the VM: hardware.cpus is 2 instead of 4, hardware.memoryMiB is 1024 instead of 2048: the host is full",
			status: map[string]any{"resizable": sizes(2, 1024), "conditions": []any{map[string]any{"type": "VirtualMachineSynced", "status": "False", "message": "the host is full"}}},
		},
		{reason: "the VM has the sizes", message: "the host agent has not reported yet", status: map[string]any{"resizable": sizes(4, 2048)}},
	} {
		infra.Object["status"] = tc.status
		if err := e.Client.Update(t.Context(), infra); err != nil {
			t.Fatal(err)
		}
		got = nodeconfig.Hardware{}
		if response := update(); !strings.HasPrefix(response.Message, tc.message) || response.RetryAfterSeconds != 5 {
			t.Errorf("%s: %q, retry after %d s", tc.reason, response.Message, response.RetryAfterSeconds)
		}
		if want := (nodeconfig.Hardware{CPUs: 4, MemoryMiB: 2048}); (got == want) != strings.HasPrefix(tc.message, "the host agent") {
			t.Errorf("%s: settings for %+v", tc.reason, got)
		}
	}
}

// sizes are the sizes in the status of an infrastructure machine.
func sizes(cpus, memory int64) []any {
	return []any{
		map[string]any{"field": "hardware.cpus", "size": cpus, "maxSize": int64(16), "step": int64(2)},
		map[string]any{"field": "hardware.memoryMiB", "size": memory, "maxSize": int64(4096), "step": int64(256)},
	}
}

// infraKind is the kind of the infrastructure machines.
var infraKind = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "TestMachine"}

// addInfraKinds adds the kinds of an infrastructure provider.
func addInfraKinds(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{infraKind.GroupVersion()})
	for _, kind := range []string{"TestMachine", "TestMachineTemplate"} {
		mapper.Add(infraKind.GroupVersion().WithKind(kind), meta.RESTScopeNamespace)
		scheme.AddKnownTypeWithName(infraKind.GroupVersion().WithKind(kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(infraKind.GroupVersion().WithKind(kind+"List"), &unstructured.UnstructuredList{})
	}
	return mapper
}
