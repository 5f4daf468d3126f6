package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/exp/topology/desiredstate"
	"sigs.k8s.io/cluster-api/exp/topology/scope"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// said are values for every variable of a class, defaults included: it is the
// core's webhook that fills these in.
const said = `
controlPlaneEndpoint: {host: 192.0.2.10, port: 6443}
endpointProvider: External
server: hypervisor.example
tls: {thumbprint: "` + "AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB" + `"}
identity: {kind: Secret, name: account}
template: image-<version>
controlPlaneSize: {cpus: 2, memoryMiB: 4096}
nodeSize: {cpus: 4, memoryMiB: 8192}
format: ignition
platform: {ntp: {servers: [ntp.example]}}
controlPlaneConfig: {preKubeadmCommands: ["true"]}
nodeConfig: {taints: [{key: example, effect: NoSchedule}], format: cloud-config}
`

var _ = DescribeTable("a Cluster of the class", func(ctx SpecContext, provider, own string) {
	file, err := os.ReadFile(filepath.Join(tools.Root(), "templates", provider, "clusterclass-"+provider+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	objects, err := Objects(file)
	Expect(err).NotTo(HaveOccurred())
	cluster := topology(provider, said+own)
	s := scope.New(cluster)
	s.Blueprint = blueprint(objects, cluster)
	s.Current.ControlPlane = &scope.ControlPlaneState{}

	generator, err := desiredstate.NewGenerator(server.Client, clustercache.NewFakeClusterCache(server.Client, client.ObjectKeyFromObject(cluster)), nil, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	desired, err := generator.Generate(ctx, s)
	Expect(err).NotTo(HaveOccurred())

	worker := desired.MachineDeployments["infra-a"]
	all := []client.Object{
		desired.InfrastructureCluster, desired.ControlPlane.InfrastructureMachineTemplate, desired.ControlPlane.Object,
		worker.BootstrapTemplate, worker.InfrastructureMachineTemplate,
	}
	for _, object := range all {
		Expect(server.Client.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)).To(Succeed(), "%T %s", object, object.GetName())
	}
	Expect(field(desired.InfrastructureCluster, "spec", "controlPlaneEndpoint", "host")).To(Equal("192.0.2.10"))
	Expect(field(desired.InfrastructureCluster, "spec", "placement")).NotTo(BeEmpty())
	Expect(field(desired.ControlPlane.Object, "spec", "endpoint", "provider")).To(Equal("External"))
	Expect(field(desired.ControlPlane.Object, "spec", "config")).To(And(HaveKeyWithValue("format", "ignition"), HaveKey("preKubeadmCommands")))
	Expect(field(desired.ControlPlane.Object, "spec", "platform", "ntp", "servers")).To(ConsistOf("ntp.example"))
	Expect(field(worker.BootstrapTemplate, "spec", "template", "spec")).To(And(
		HaveKeyWithValue("roles", ConsistOf("infra")), HaveKeyWithValue("format", "cloud-config"), HaveKey("taints")))
	for _, template := range []*unstructured.Unstructured{desired.ControlPlane.InfrastructureMachineTemplate, worker.InfrastructureMachineTemplate} {
		Expect(field(template, "spec", "template", "spec", "template")).To(Or(
			Equal("image-v1.36.3"), HaveKeyWithValue("name", "image-v1.36.3")), "a template can be one of the version")
	}
	Expect(field(worker.InfrastructureMachineTemplate, "spec", "template", "spec", "hardware", "memoryMiB")).To(BeEquivalentTo(16384),
		"a machineDeployment overrides the size")
	Expect(field(desired.ControlPlane.InfrastructureMachineTemplate, "spec", "template", "spec", "hardware", "memoryMiB")).To(BeEquivalentTo(4096))
},
	Entry("nova-vsphere", "nova-vsphere", "network: tenants\nplacement: {datacenter: dc, folder: tenants}\n"),
	Entry("nova-zvirt", "nova-zvirt", "network: {vnicProfile: tenants/tenants, guestName: enp1s0}\nplacement: {cluster: Default, storageDomain: data}\n"),
)

// topology is a Cluster of a class with nodes for infra.
func topology(class, variables string) *clusterv1.Cluster {
	values := map[string]any{}
	Expect(yaml.Unmarshal([]byte(variables), &values)).To(Succeed())
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name, cluster.UID = "default", "classed", "3e1b1c1e-0000-4000-8000-000000000000"
	three, one := int32(3), int32(1)
	cluster.Spec.Topology = clusterv1.Topology{
		ClassRef:     clusterv1.ClusterClassRef{Name: class},
		Version:      "v1.36.3",
		ControlPlane: clusterv1.ControlPlaneTopology{Replicas: &three},
		Workers: clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{{
			Class: "infra", Name: "infra-a", Replicas: &one,
			Variables: clusterv1.MachineDeploymentVariables{Overrides: []clusterv1.ClusterVariable{{
				Name: "nodeSize", Value: apiextensionsv1.JSON{Raw: []byte(`{"cpus":8,"memoryMiB":16384}`)},
			}}},
		}}},
	}
	for name, value := range values {
		raw, err := json.Marshal(value)
		Expect(err).NotTo(HaveOccurred())
		cluster.Spec.Topology.Variables = append(cluster.Spec.Topology.Variables,
			clusterv1.ClusterVariable{Name: name, Value: apiextensionsv1.JSON{Raw: raw}})
	}
	return cluster
}

// blueprint puts a class and its templates together, as the core's reconciler
// reads them.
func blueprint(objects []*unstructured.Unstructured, cluster *clusterv1.Cluster) *scope.ClusterBlueprint {
	named := map[string]*unstructured.Unstructured{}
	class := &clusterv1.ClusterClass{}
	for _, object := range objects {
		object.SetNamespace(cluster.Namespace)
		named[object.GetKind()+object.GetName()] = object
		if object.GetKind() == "ClusterClass" {
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, class)).To(Succeed())
		}
	}
	template := func(ref clusterv1.ClusterClassTemplateReference) *unstructured.Unstructured {
		Expect(named).To(HaveKey(ref.Kind + ref.Name))
		return named[ref.Kind+ref.Name]
	}
	// The core's reconciler of classes does this.
	for _, variable := range class.Spec.Variables {
		class.Status.Variables = append(class.Status.Variables, clusterv1.ClusterClassStatusVariable{
			Name: variable.Name,
			Definitions: []clusterv1.ClusterClassStatusVariableDefinition{{
				From: clusterv1.VariableDefinitionFromInline, Required: variable.Required, Schema: variable.Schema,
			}},
		})
	}
	b := &scope.ClusterBlueprint{
		Topology:                      cluster.Spec.Topology,
		ClusterClass:                  class,
		InfrastructureClusterTemplate: template(class.Spec.Infrastructure.TemplateRef),
		ControlPlane: &scope.ControlPlaneBlueprint{
			Template:                      template(class.Spec.ControlPlane.TemplateRef),
			InfrastructureMachineTemplate: template(class.Spec.ControlPlane.MachineInfrastructure.TemplateRef),
			HealthCheck:                   class.Spec.ControlPlane.HealthCheck,
		},
		MachineDeployments: map[string]*scope.MachineDeploymentBlueprint{},
	}
	for i := range class.Spec.Workers.MachineDeployments {
		workers := &class.Spec.Workers.MachineDeployments[i]
		b.MachineDeployments[workers.Class] = &scope.MachineDeploymentBlueprint{
			BootstrapTemplate:             template(workers.Bootstrap.TemplateRef),
			InfrastructureMachineTemplate: template(workers.Infrastructure.TemplateRef),
			HealthCheck:                   workers.HealthCheck,
		}
	}
	return b
}

// field is what an object says, nil if nothing.
func field(object *unstructured.Unstructured, path ...string) any {
	value, _, err := unstructured.NestedFieldCopy(object.Object, path...)
	Expect(err).NotTo(HaveOccurred())
	return value
}
