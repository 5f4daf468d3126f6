package stub

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
	"github.com/nova-platform/cluster-api-provider-nova/test/fake"
)

// NovaStubCluster is an infrastructure cluster.
type NovaStubCluster struct{ vspherev1.NovaVSphereCluster }

// DeepCopyObject returns a copy.
func (c *NovaStubCluster) DeepCopyObject() runtime.Object {
	return &NovaStubCluster{*c.DeepCopy()}
}

// NovaStubMachine is an infrastructure machine.
type NovaStubMachine struct{ vspherev1.NovaVSphereMachine }

// DeepCopyObject returns a copy.
func (m *NovaStubMachine) DeepCopyObject() runtime.Object {
	return &NovaStubMachine{*m.DeepCopy()}
}

// NovaStubMachineTemplate is a template of machines.
type NovaStubMachineTemplate struct {
	vspherev1.NovaVSphereMachineTemplate
}

// DeepCopyObject returns a copy.
func (t *NovaStubMachineTemplate) DeepCopyObject() runtime.Object {
	return &NovaStubMachineTemplate{*t.DeepCopy()}
}

// NovaStubIdentity has credentials.
type NovaStubIdentity struct{ vspherev1.NovaVSphereIdentity }

// DeepCopyObject returns a copy.
func (i *NovaStubIdentity) DeepCopyObject() runtime.Object {
	return &NovaStubIdentity{*i.DeepCopy()}
}

// list is a list of objects.
type list[T any, P interface {
	*T
	runtime.Object
}] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []T `json:"items"`
}

// DeepCopyObject returns a copy.
func (l *list[T, P]) DeepCopyObject() runtime.Object {
	c := &list[T, P]{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		if item, ok := P(&l.Items[i]).DeepCopyObject().(P); ok {
			c.Items = append(c.Items, *item)
		}
	}
	return c
}

type (
	clusterList  = list[NovaStubCluster, *NovaStubCluster]
	machineList  = list[NovaStubMachine, *NovaStubMachine]
	templateList = list[NovaStubMachineTemplate, *NovaStubMachineTemplate]
	identityList = list[NovaStubIdentity, *NovaStubIdentity]
)

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	for kind, o := range map[string]runtime.Object{
		"Cluster": &NovaStubCluster{}, "ClusterList": &clusterList{},
		"Machine": &NovaStubMachine{}, "MachineList": &machineList{},
		"MachineTemplate": &NovaStubMachineTemplate{}, "MachineTemplateList": &templateList{},
		"Identity": &NovaStubIdentity{}, "IdentityList": &identityList{},
	} {
		s.AddKnownTypeWithName(infrav1.GroupVersion.WithKind("NovaStub"+kind), o)
	}
	metav1.AddToGroupVersion(s, infrav1.GroupVersion)
	return nil
}

// connection is a driver over a hypervisor in memory. It has no sessions.
type connection struct {
	fake.Inspector[*NovaStubCluster]
	fake.Connector[*NovaStubMachine]
	fake.Sizer[*NovaStubMachineTemplate]
}

// Start waits until the manager stops.
func (connection) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// New returns a provider for a hypervisor.
func New(h *fake.Hypervisor) *provider.Provider[*NovaStubCluster, *NovaStubMachine, *NovaStubMachineTemplate] {
	return &provider.Provider[*NovaStubCluster, *NovaStubMachine, *NovaStubMachineTemplate]{
		Info: provider.Info{
			Name: "stub", Title: "Stub", Kind: "NovaStub", AddToScheme: AddToScheme, Server: "stub server", Copies: "copies", MaxCreations: 7,
			Class: `<<define "variables">>    - name: network
      required: true
      schema: {openAPIV3Schema: {type: string, minLength: 1}}
    - name: template
      required: true
      schema: {openAPIV3Schema: {type: string, minLength: 1}}<<end>>
<<define "interface">>network: variables<<end>>`,
		},
		NewCluster:     func() *NovaStubCluster { return &NovaStubCluster{} },
		NewMachine:     func() *NovaStubMachine { return &NovaStubMachine{} },
		NewMachineList: func() client.ObjectList { return &machineList{} },
		NewTemplate:    func() *NovaStubMachineTemplate { return &NovaStubMachineTemplate{} },
		NewIdentity:    func() credentials.Identity { return &NovaStubIdentity{} },
		Connect: func(client.Reader, provider.Options) provider.Connection[*NovaStubCluster, *NovaStubMachine, *NovaStubMachineTemplate] {
			return connection{fake.Inspector[*NovaStubCluster]{Hypervisor: h}, fake.Connector[*NovaStubMachine]{Hypervisor: h}, fake.Sizer[*NovaStubMachineTemplate]{Hypervisor: h}}
		},
	}
}
