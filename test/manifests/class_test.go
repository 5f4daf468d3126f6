package manifests

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	webhooks "sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/exp/topology/desiredstate"
	"sigs.k8s.io/cluster-api/exp/topology/scope"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// allValues are values for every variable of a class.
const allValues = `
controlPlaneEndpoint: {host: 192.0.2.10}
endpointProvider: External
server: hypervisor.example
tls: {thumbprint: "` + "AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB" + `"}
identity: {kind: Secret, name: account}
template: image-<version>
controlPlaneSize: {cpus: 2, memoryMiB: 4096}
nodeSize: {cpus: 4, memoryMiB: 8192}
format: ignition
sshAuthorizedKey: ssh-ed25519 AAAA "ops" <ops@example>
platform: {ntp: {servers: [ntp.example]}}
controlPlaneConfig: {preKubeadmCommands: ["true"]}
nodeConfig: {taints: [{key: example, effect: NoSchedule}], format: cloud-config}
`

// requiredValues are values for the required variables of a class.
const requiredValues = identityValues + `
server: hypervisor.example
`

// identityValues are values for the required variables of a class with an identity, which has its own server.
const identityValues = `
controlPlaneEndpoint: {host: 192.0.2.10}
template: image-<version>
`

var _ = DescribeTable("a Cluster of the class", func(ctx SpecContext, provider, own string) {
	cluster := topology(provider, allValues+own)
	cluster.Spec.Topology.Workers.MachineDeployments[0].Variables.Overrides = []clusterv1.ClusterVariable{{
		Name: "nodeSize", Value: apiextensionsv1.JSON{Raw: []byte(`{"cpus":8,"memoryMiB":16384}`)},
	}}
	desired := desire(ctx, cluster, class(provider))
	worker := desired.MachineDeployments["infra-a"]
	Expect(field(desired.InfrastructureCluster, "spec", "controlPlaneEndpoint")).To(Equal(map[string]any{"host": "192.0.2.10", "port": int64(6443)}))
	Expect(field(desired.InfrastructureCluster, "spec", "identityRef")).To(Equal(map[string]any{"kind": "Secret", "name": "account"}))
	Expect(field(desired.InfrastructureCluster, "spec", "server")).To(Equal("hypervisor.example"))
	Expect(field(desired.InfrastructureCluster, "spec", "tls")).To(HaveKey("thumbprint"))
	Expect(field(desired.InfrastructureCluster, "spec", "placement")).NotTo(BeEmpty())
	Expect(field(desired.ControlPlane.Object, "spec", "endpoint", "provider")).To(Equal("External"))
	Expect(field(desired.ControlPlane.Object, "spec", "config")).To(And(HaveKeyWithValue("format", "ignition"), HaveKey("preKubeadmCommands")))
	Expect(field(desired.ControlPlane.Object, "spec", "platform", "ntp", "servers")).To(ConsistOf("ntp.example"))
	Expect(field(worker.BootstrapTemplate, "spec", "template", "spec")).To(And(
		HaveKeyWithValue("roles", ConsistOf("infra")), HaveKeyWithValue("format", "cloud-config"), HaveKey("taints")))
	nova := ConsistOf(map[string]any{
		"name": "nova", "sudo": "ALL=(ALL) NOPASSWD:ALL", "sshAuthorizedKeys": []any{`ssh-ed25519 AAAA "ops" <ops@example>`},
	})
	Expect(field(desired.ControlPlane.Object, "spec", "config", "users")).To(nova)
	Expect(field(worker.BootstrapTemplate, "spec", "template", "spec", "users")).To(nova)
	for _, template := range []*unstructured.Unstructured{desired.ControlPlane.InfrastructureMachineTemplate, worker.InfrastructureMachineTemplate} {
		Expect(field(template, "spec", "template", "spec", "template", "name")).To(Or(
			Equal("image-v1.36.3"), HaveKeyWithValue("name", "image-v1.36.3")), "a template can be one of the version")
	}
	Expect(field(worker.InfrastructureMachineTemplate, "spec", "template", "spec", "hardware", "memoryMiB")).To(BeEquivalentTo(16384),
		"a machineDeployment overrides the size")
	Expect(field(desired.ControlPlane.InfrastructureMachineTemplate, "spec", "template", "spec", "hardware", "memoryMiB")).To(BeEquivalentTo(4096))
},
	Entry("nova-vsphere", "nova-vsphere", "network: tenants\nplacement: {datacenter: dc, folder: tenants}\n"),
	Entry("nova-zvirt", "nova-zvirt", "network: tenants/tenants\ndeviceName: enp1s0\nplacement: {computeCluster: Default, storageDomain: data}\n"),
	Entry("nova-proxmox", "nova-proxmox", "network: vmbr0\nplacement: {nodes: [pve1], pool: tenants}\n"),
)

// A user's own class: a copy whose templates set more fields than those of a release.
const (
	ownVSphere = `
NovaVSphereClusterTemplate:
  identityRef: {kind: NovaVSphereIdentity, name: shared}
  placement: {datacenter: dc}
  antiAffinity: None
NovaVSphereMachineTemplate:
  hardware: {cpus: 16, memoryMiB: 65536, firmware: EFI}
  network: {interfaces: [{network: variables, mtu: 9000}, {network: storage}]}
  powerOff: {mode: Hard}
` + ownNodes
	ownZVirt = `
NovaZVirtClusterTemplate:
  identityRef: {kind: NovaZVirtIdentity, name: shared}
  network: tenants/tenants
NovaZVirtMachineTemplate:
  hardware: {cpus: 16, cpuTopology: {coresPerSocket: 2}, memoryMiB: 65536, firmware: EFI}
  network: {interfaces: [{network: variables, deviceName: enp1s0, dhcp4: true}, {network: storage/storage, deviceName: enp2s0}]}
  tags: [{name: own}]
` + ownNodes
	ownProxmox = `
NovaProxmoxClusterTemplate:
  identityRef: {kind: NovaProxmoxIdentity, name: shared}
  network: vmbr1
NovaProxmoxMachineTemplate:
  hardware: {cpus: 16, cpuTopology: {coresPerSocket: 2}, memoryMiB: 65536, firmware: EFI}
  network: {interfaces: [{network: variables, vlan: 7}, {network: storage}]}
  tags: [own]
` + ownNodes
	ownNodes = `
NovaControlPlaneTemplate:
  endpoint: {kubeVIP: {interface: eth1}}
  platform: {imageRepository: registry.example/kubernetes, ntp: {servers: [own.example]}}
  config: {format: ignition, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}}
NovaConfigTemplate:
  format: ignition
  files: [{path: /etc/own, content: own}]
  kubelet: {extraArgs: [{name: v, value: "4"}]}
`
)

var _ = DescribeTable("a class with custom templates", func(ctx SpecContext, provider, own, variables string, want map[string]string) {
	desired := desire(ctx, topology(provider, identityValues+variables), class(provider, own))
	worker := desired.MachineDeployments["infra-a"]
	controlPlane := map[string]any{}
	for _, name := range []string{"endpoint", "platform", "config"} {
		controlPlane[name] = field(desired.ControlPlane.Object, "spec", name)
	}
	for said, is := range map[string]any{
		"cluster":       field(desired.InfrastructureCluster, "spec"),
		"control plane": controlPlane,
		"its machines":  field(desired.ControlPlane.InfrastructureMachineTemplate, "spec", "template", "spec"),
		"node":          field(worker.BootstrapTemplate, "spec", "template", "spec"),
		"nodes":         field(worker.InfrastructureMachineTemplate, "spec", "template", "spec"),
	} {
		is, err := yaml.Marshal(is)
		Expect(err).NotTo(HaveOccurred())
		Expect(is).To(MatchYAML(want[said]), said)
	}
},
	Entry("of vSphere keeps fields that no variable sets", "nova-vsphere", ownVSphere, "network: tenants\n", map[string]string{
		"cluster": `{controlPlaneEndpoint: {host: 192.0.2.10, port: 6443},
			identityRef: {kind: NovaVSphereIdentity, name: shared}, placement: {datacenter: dc}, antiAffinity: None}`,
		"control plane": `{endpoint: {provider: KubeVIP, kubeVIP: {interface: eth1}},
			platform: {kubeletCertificates: Cluster, imageRepository: registry.example/kubernetes, ntp: {servers: [own.example]}},
			config: {format: ignition, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}}}`,
		"its machines": `{template: {name: image-v1.36.3}, hardware: {cpus: 16, memoryMiB: 65536, firmware: EFI},
			network: {interfaces: [{network: tenants, mtu: 9000}, {network: storage}]}, powerOff: {mode: Hard}}`,
		"node": `{roles: [infra], format: ignition, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}}`,
		"nodes": `{template: {name: image-v1.36.3}, hardware: {cpus: 16, memoryMiB: 65536, firmware: EFI},
			network: {interfaces: [{network: tenants, mtu: 9000}, {network: storage}]}, powerOff: {mode: Hard}}`,
	}),
	Entry("of vSphere applies variables, and changes no other field", "nova-vsphere", ownVSphere, `
network: tenants
identity: {name: another}
placement: {datacenter: dc, folder: tenants}
controlPlaneSize: {cpus: 8}
nodeSize: {memoryMiB: 16384}
sshAuthorizedKey: ssh-ed25519 AAAA
platform: {ntp: {servers: [ntp.example]}}
controlPlaneConfig: {preKubeadmCommands: ["true"], users: [{name: ops}]}
nodeConfig: {users: [{name: ops}], files: [{path: /etc/other, content: other}], taints: [{key: example, effect: NoSchedule}]}
`, map[string]string{
		"cluster": `{controlPlaneEndpoint: {host: 192.0.2.10, port: 6443},
			identityRef: {kind: NovaVSphereIdentity, name: another}, placement: {datacenter: dc, folder: tenants}, antiAffinity: None}`,
		"control plane": `{endpoint: {provider: KubeVIP, kubeVIP: {interface: eth1}},
			platform: {kubeletCertificates: Cluster, imageRepository: registry.example/kubernetes, ntp: {servers: [ntp.example]}},
			config: {format: ignition, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}, preKubeadmCommands: ["true"], users: [{name: ops}]}}`,
		"its machines": `{template: {name: image-v1.36.3}, hardware: {cpus: 8, memoryMiB: 65536, firmware: EFI},
			network: {interfaces: [{network: tenants, mtu: 9000}, {network: storage}]}, powerOff: {mode: Hard}}`,
		"node": `{roles: [infra], format: ignition, files: [{path: /etc/other, content: other}],
			kubelet: {extraArgs: [{name: v, value: "4"}]}, taints: [{key: example, effect: NoSchedule}], users: [{name: ops}]}`,
		"nodes": `{template: {name: image-v1.36.3}, hardware: {cpus: 16, memoryMiB: 16384, firmware: EFI},
			network: {interfaces: [{network: tenants, mtu: 9000}, {network: storage}]}, powerOff: {mode: Hard}}`,
	}),
	Entry("of zVirt applies variables, and changes no other field", "nova-zvirt", ownZVirt, `
network: tenants/other
placement: {computeCluster: Default}
nodeSize: {cpus: 4}
format: cloud-config
controlPlaneConfig: {format: ignition}
`, map[string]string{
		"cluster": `{controlPlaneEndpoint: {host: 192.0.2.10, port: 6443},
			identityRef: {kind: NovaZVirtIdentity, name: shared}, placement: {computeCluster: Default}, network: tenants/tenants}`,
		"control plane": `{endpoint: {provider: KubeVIP, kubeVIP: {interface: eth1}},
			platform: {kubeletCertificates: Cluster, imageRepository: registry.example/kubernetes, ntp: {servers: [own.example]}},
			config: {format: ignition, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}}}`,
		"its machines": `{template: {name: image-v1.36.3}, hardware: {cpus: 16, cpuTopology: {coresPerSocket: 2}, memoryMiB: 65536, firmware: EFI}, tags: [{name: own}],
			network: {interfaces: [{network: tenants/other, deviceName: enp1s0, dhcp4: true}, {network: storage/storage, deviceName: enp2s0}]}}`,
		"node": `{roles: [infra], format: cloud-config, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}}`,
		"nodes": `{template: {name: image-v1.36.3}, hardware: {cpus: 4, cpuTopology: {coresPerSocket: 2}, memoryMiB: 65536, firmware: EFI}, tags: [{name: own}],
			network: {interfaces: [{network: tenants/other, deviceName: enp1s0, dhcp4: true}, {network: storage/storage, deviceName: enp2s0}]}}`,
	}),
	Entry("of Proxmox VE applies variables, and changes no other field", "nova-proxmox", ownProxmox, `
network: vmbr2
placement: {pool: tenants}
highAvailability: {maxRestart: 2}
nodeSize: {cpus: 4}
format: cloud-config
controlPlaneConfig: {format: ignition}
`, map[string]string{
		"cluster": `{controlPlaneEndpoint: {host: 192.0.2.10, port: 6443},
			identityRef: {kind: NovaProxmoxIdentity, name: shared}, placement: {pool: tenants}, network: vmbr1}`,
		"control plane": `{endpoint: {provider: KubeVIP, kubeVIP: {interface: eth1}},
			platform: {kubeletCertificates: Cluster, imageRepository: registry.example/kubernetes, ntp: {servers: [own.example]}},
			config: {format: ignition, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}}}`,
		"its machines": `{template: {name: image-v1.36.3}, hardware: {cpus: 16, cpuTopology: {coresPerSocket: 2}, memoryMiB: 65536, firmware: EFI}, tags: [own], highAvailability: {maxRestart: 2},
			network: {interfaces: [{network: vmbr2, vlan: 7}, {network: storage}]}}`,
		"node": `{roles: [infra], format: cloud-config, files: [{path: /etc/own, content: own}], kubelet: {extraArgs: [{name: v, value: "4"}]}}`,
		"nodes": `{template: {name: image-v1.36.3}, hardware: {cpus: 4, cpuTopology: {coresPerSocket: 2}, memoryMiB: 65536, firmware: EFI}, tags: [own], highAvailability: {maxRestart: 2},
			network: {interfaces: [{network: vmbr2, vlan: 7}, {network: storage}]}}`,
	}),
)

// A field that is new would be refused, or lost, in a class that does not know
// it.
var _ = DescribeTable("the class of a hypervisor knows every field", func(ctx SpecContext, provider string) {
	_, file := split(class(provider))
	known := map[string][]string{
		"platform":           jsonFields[bootstrapv1.PlatformSpec](),
		"controlPlaneConfig": jsonFields[bootstrapv1.NodeConfigSpec](),
		"nodeConfig":         without(jsonFields[bootstrapv1.NodeConfigSpec](), "roles"),
	}
	for _, variable := range file.Spec.Variables {
		fields, ok := known[variable.Name]
		if !ok {
			continue
		}
		Expect(slices.Collect(maps.Keys(variable.Schema.OpenAPIV3Schema.Properties))).To(ConsistOf(fields), variable.Name)
		for _, name := range fields {
			Expect(file.Spec.Patches).To(ContainElement(HaveField("Name", variable.Name+"."+name)))
		}
		delete(known, variable.Name)
	}
	Expect(known).To(BeEmpty())

	cluster := topology(provider, requiredValues+map[string]string{
		"nova-vsphere": "network: tenants\n", "nova-zvirt": "network: a/b\nplacement: {computeCluster: Default}\n", "nova-proxmox": "network: vmbr0\n",
	}[provider]+"nodeConfig: {roles: [ingress]}\n")
	Expect((&webhooks.Cluster{}).DefaultAndValidateVariables(ctx, cluster, nil, blueprint(class(provider), cluster).ClusterClass).ToAggregate()).
		To(MatchError(ContainSubstring("roles")), "a variable without a patch is rejected")
},
	Entry("nova-vsphere", "nova-vsphere"),
	Entry("nova-zvirt", "nova-zvirt"),
	Entry("nova-proxmox", "nova-proxmox"),
)

// The API server accepts every value that a class accepts. Otherwise a Cluster would be admitted,
// but never be created.
var _ = DescribeTable("a class and the API server agree on", func(ctx SpecContext, provider, variable string, takes, refuses map[string]string) {
	refused := func(value string) error {
		own := map[string]string{
			"nova-vsphere": "network: tenants\n", "nova-zvirt": "network: a/b\nplacement: {computeCluster: Default}\n", "nova-proxmox": "network: vmbr0\n",
		}[provider]
		cluster := topology(provider, replaced(requiredValues+own, variable, value))
		err := (&webhooks.Cluster{}).DefaultAndValidateVariables(ctx, cluster, nil, blueprint(class(provider), cluster).ClusterClass).ToAggregate()
		if err == nil {
			desire(ctx, cluster, class(provider))
		}
		return err
	}
	for name, value := range takes {
		Expect(refused(value)).To(Succeed(), name)
	}
	for value, says := range refuses {
		Expect(refused(value)).To(MatchError(ContainSubstring(says)), "%.80s", value)
	}
},
	Entry("sizes of vSphere", "nova-vsphere", "nodeSize",
		map[string]string{"least": "{cpus: 1, memoryMiB: 1024}", "most": "{cpus: 768, memoryMiB: 25165824}", "a multiple of 4": "{memoryMiB: 4100}"},
		map[string]string{
			"{memoryMiB: 4098}": "memoryMiB must be a multiple of 4", "{memoryMiB: 25165828}": "25165824",
			"{cpus: 769}": "768", "{cpus: 0}": "1",
		}),
	Entry("sizes of vSphere's control planes", "nova-vsphere", "controlPlaneSize",
		map[string]string{"least": "{cpus: 2, memoryMiB: 2048}", "most": "{cpus: 768, memoryMiB: 25165824}"},
		map[string]string{"{memoryMiB: 4098}": "memoryMiB must be a multiple of 4", "{memoryMiB: 25165828}": "25165824", "{cpus: 769}": "768"}),
	Entry("sizes of zVirt", "nova-zvirt", "nodeSize",
		map[string]string{"least": "{cpus: 1, memoryMiB: 1024}", "most": "{cpus: 768, memoryMiB: 25165824}", "a multiple of 4": "{memoryMiB: 4100}"},
		map[string]string{"{memoryMiB: 4098}": "memoryMiB must be a multiple of 4", "{memoryMiB: 25165828}": "25165824", "{cpus: 769}": "768"}),
	Entry("sizes of zVirt's control planes", "nova-zvirt", "controlPlaneSize",
		map[string]string{"least": "{cpus: 2, memoryMiB: 2048}", "most": "{cpus: 768, memoryMiB: 25165824}"},
		map[string]string{"{memoryMiB: 4098}": "memoryMiB must be a multiple of 4", "{memoryMiB: 25165828}": "25165824", "{cpus: 769}": "768"}),
	Entry("sizes of Proxmox VE", "nova-proxmox", "nodeSize",
		map[string]string{"least": "{cpus: 1, memoryMiB: 1024}", "most": "{cpus: 512, memoryMiB: 25165824}"},
		map[string]string{"{memoryMiB: 25165828}": "25165824"}),
	Entry("placement in vSphere", "nova-vsphere", "placement",
		map[string]string{
			"nothing": "{}", "all": "{datacenter: a, computeCluster: b, resourcePool: c, folder: d, datastore: e, storagePolicy: f}",
			"long": "{folder: " + strings.Repeat("a", 1024) + ", storagePolicy: " + strings.Repeat("a", 256) + "}",
		},
		map[string]string{
			`{datacenter: ""}`: "datacenter", `{computeCluster: ""}`: "computeCluster", `{resourcePool: ""}`: "resourcePool", `{folder: ""}`: "folder",
			`{datastore: ""}`: "datastore", `{storagePolicy: ""}`: "storagePolicy",
			"{folder: " + strings.Repeat("a", 1025) + "}": "1024", "{storagePolicy: " + strings.Repeat("a", 257) + "}": "256",
		}),
	Entry("placement in zVirt", "nova-zvirt", "placement",
		map[string]string{"all": "{computeCluster: a, datacenter: b, storageDomain: " + strings.Repeat("a", 256) + "}"},
		map[string]string{
			`{computeCluster: a, datacenter: ""}`: "datacenter", `{computeCluster: a, storageDomain: ""}`: "storageDomain",
			"{computeCluster: " + strings.Repeat("a", 257) + "}": "256",
		}),
	Entry("placement in Proxmox VE", "nova-proxmox", "placement",
		map[string]string{"all": "{nodes: [a], storage: local-lvm, bootstrapStorage: local, pool: " + strings.Repeat("a", 128) + "}"},
		map[string]string{`{nodes: []}`: "nodes", `{storage: a}`: "storage", "{pool: " + strings.Repeat("a", 129) + "}": "128", "{}": "placement"}),
	Entry("trust of vSphere", "nova-vsphere", "tls", trusts, distrusts),
	Entry("trust of zVirt", "nova-zvirt", "tls", trusts, distrusts),
	Entry("the address of vSphere", "nova-vsphere", "server", servers, noServers),
	Entry("the address of zVirt", "nova-zvirt", "server", servers, noServers),
	Entry("the template of vSphere", "nova-vsphere", "template",
		map[string]string{"long": strings.Repeat("a", 1024)}, map[string]string{strings.Repeat("a", 1025): "1024", `""`: "template"}),
	Entry("the template of zVirt", "nova-zvirt", "template",
		map[string]string{"long": strings.Repeat("a", 255)}, map[string]string{strings.Repeat("a", 256): "255", `""`: "template"}),
	Entry("the network of vSphere", "nova-vsphere", "network",
		map[string]string{"long": strings.Repeat("a", 1024)}, map[string]string{strings.Repeat("a", 1025): "1024"}),
	Entry("the network of zVirt", "nova-zvirt", "network",
		map[string]string{"long": strings.Repeat("a", 1024)}, map[string]string{strings.Repeat("a", 1025): "1024"}),
	Entry("the device name of zVirt", "nova-zvirt", "deviceName",
		map[string]string{"long": "enp1s0f0np0-15c"}, map[string]string{"enp1s0f0np0-16ch": "15", "-a": "deviceName"}),
	Entry("the template of Proxmox VE", "nova-proxmox", "template",
		map[string]string{"long": strings.Repeat("a", 255)}, map[string]string{strings.Repeat("a", 256): "255", `""`: "template"}),
	Entry("the network of Proxmox VE", "nova-proxmox", "network",
		map[string]string{"long": strings.Repeat("a", 15)}, map[string]string{strings.Repeat("a", 16): "15"}),
	Entry("the key of vSphere", "nova-vsphere", "sshAuthorizedKey", keys, noKeys),
	Entry("the key of zVirt", "nova-zvirt", "sshAuthorizedKey", keys, noKeys),
	Entry("the account of vSphere", "nova-vsphere", "identity",
		map[string]string{"long": "{name: " + strings.Repeat("a", 253) + "}"}, map[string]string{"{name: " + strings.Repeat("a", 254) + "}": "253"}),
	Entry("the account of zVirt", "nova-zvirt", "identity",
		map[string]string{"long": "{name: " + strings.Repeat("a", 253) + "}"}, map[string]string{"{name: " + strings.Repeat("a", 254) + "}": "253"}),
	Entry("the endpoint of vSphere", "nova-vsphere", "controlPlaneEndpoint",
		map[string]string{"long": "{host: " + strings.Repeat("a", 512) + "}"}, map[string]string{"{host: " + strings.Repeat("a", 513) + "}": "512"}),
	Entry("the endpoint of zVirt", "nova-zvirt", "controlPlaneEndpoint",
		map[string]string{"long": "{host: " + strings.Repeat("a", 512) + "}"}, map[string]string{"{host: " + strings.Repeat("a", 513) + "}": "512"}),
)

// The values that the classes of both hypervisors accept and reject.
var (
	aThumbprint = strings.Repeat("AB:", 31) + "ab"
	trusts      = map[string]string{
		"nothing": "{}", "thumbprint": `{thumbprint: "` + aThumbprint + `"}`, "bundle": `{caBundle: "-----BEGIN CERTIFICATE-----"}`,
	}
	distrusts = map[string]string{
		`{thumbprint: "` + aThumbprint + `", caBundle: "-----BEGIN CERTIFICATE-----"}`: "only one of thumbprint and caBundle can be set",
		`{thumbprint: "` + strings.Repeat("AB:", 19) + `AB"}`:                          "thumbprint must be the SHA-256 of the certificate",
		`{thumbprint: ""}`:    "thumbprint",
		`{caBundle: nothing}`: "caBundle must hold at least one PEM certificate",
		`{caBundle: "-----BEGIN CERTIFICATE-----` + strings.Repeat("a", 65536) + `"}`: "65536",
	}
	keys      = map[string]string{"none": `""`, "one": "ssh-ed25519 AAAA ops", "long": strings.Repeat("a", 4096)}
	noKeys    = map[string]string{`"ssh-ed25519 AAAA\nssh-ed25519 BBBB"`: "sshAuthorizedKey", strings.Repeat("a", 4097): "4096"}
	servers   = map[string]string{"name": "hypervisor.example", "with a port": `"192.0.2.1:8443"`, "long": strings.Repeat("a", 512)}
	noServers = map[string]string{
		"https://hypervisor.example": "without scheme, path or credentials", "admin@hypervisor.example": "without scheme, path or credentials",
		`"a\nb: c"`: "without scheme, path or credentials", `"a\"b"`: "without scheme, path or credentials",
		strings.Repeat("a", 513): "512", `""`: "server",
	}
)

// replaced gives one variable another value.
func replaced(variables, name, value string) string {
	GinkgoHelper()
	values := map[string]any{}
	Expect(yaml.Unmarshal([]byte(variables), &values)).To(Succeed())
	var own any
	Expect(yaml.Unmarshal([]byte(value), &own)).To(Succeed())
	values[name] = own
	out, err := yaml.Marshal(values)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// class returns the objects of a provider's class, with templates that a user edited in a copy.
func class(provider string, edits ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	file, err := os.ReadFile(filepath.Join(tools.Root(), "templates", provider, "clusterclass-"+provider+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	objects, err := Objects(file)
	Expect(err).NotTo(HaveOccurred())
	for _, edit := range edits {
		own := map[string]map[string]any{}
		Expect(yaml.Unmarshal([]byte(edit), &own)).To(Succeed())
		for _, object := range objects {
			for name, value := range own[object.GetKind()] {
				is, _, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec", name)
				Expect(err).NotTo(HaveOccurred())
				if is, ok := is.(map[string]any); ok && name != "network" {
					maps.Copy(is, value.(map[string]any))
					continue
				}
				Expect(unstructured.SetNestedField(object.Object, value, "spec", "template", "spec", name)).To(Succeed())
			}
		}
	}
	return objects
}

// split finds the class among its objects.
func split(objects []*unstructured.Unstructured) (map[string]*unstructured.Unstructured, *clusterv1.ClusterClass) {
	GinkgoHelper()
	named := map[string]*unstructured.Unstructured{}
	class := &clusterv1.ClusterClass{}
	for _, object := range objects {
		named[object.GetKind()+object.GetName()] = object
		if object.GetKind() == "ClusterClass" {
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, class)).To(Succeed())
		}
	}
	return named, class
}

// desire returns the objects that the core renders for a Cluster, and which its webhooks and the
// API server accept.
func desire(ctx context.Context, cluster *clusterv1.Cluster, objects []*unstructured.Unstructured) *scope.ClusterState {
	GinkgoHelper()
	s := scope.New(cluster)
	s.Blueprint = blueprint(objects, cluster)
	s.Current.ControlPlane = &scope.ControlPlaneState{}
	_, err := (&webhooks.ClusterClass{Client: server.Client}).ValidateCreate(ctx, s.Blueprint.ClusterClass)
	Expect(err).NotTo(HaveOccurred())
	Expect((&webhooks.Cluster{}).DefaultAndValidateVariables(ctx, cluster, nil, s.Blueprint.ClusterClass).ToAggregate()).To(Succeed())
	s.Blueprint.Topology = cluster.Spec.Topology
	for _, object := range objects {
		Expect(server.Client.Create(ctx, object.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).
			To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}

	generator, err := desiredstate.NewGenerator(server.Client, clustercache.NewFakeClusterCache(server.Client, client.ObjectKeyFromObject(cluster)), nil, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	desired, err := generator.Generate(ctx, s)
	Expect(err).NotTo(HaveOccurred())
	worker := desired.MachineDeployments["infra-a"]
	for _, object := range []client.Object{
		desired.InfrastructureCluster, desired.ControlPlane.InfrastructureMachineTemplate, desired.ControlPlane.Object,
		worker.BootstrapTemplate, worker.InfrastructureMachineTemplate,
	} {
		Expect(server.Client.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)).To(Succeed(), "%T %s", object, object.GetName())
	}
	return desired
}

// jsonFields are the names of a struct's fields in JSON.
func jsonFields[T any]() []string {
	var names []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// without takes some names out of others.
func without(names []string, some ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(some, name) })
}

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
	for _, object := range objects {
		object.SetNamespace(cluster.Namespace)
	}
	named, class := split(objects)
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

// field returns the value of a field, or nil if it is not set.
func field(object *unstructured.Unstructured, path ...string) any {
	value, _, err := unstructured.NestedFieldCopy(object.Object, path...)
	Expect(err).NotTo(HaveOccurred())
	return value
}
