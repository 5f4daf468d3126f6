package vsphere

import (
	_ "embed"

	"sigs.k8s.io/controller-runtime/pkg/client"

	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

//go:embed class.tmpl
var class string

// Provider is the provider for vCenter.
var Provider = provider.Provider[*vspherev1.NovaVSphereCluster, *vspherev1.NovaVSphereMachine, *vspherev1.NovaVSphereMachineTemplate]{
	Info: provider.Info{
		Name: vcenter.ProviderName, Title: "vSphere", Kind: "NovaVSphere", AddToScheme: vspherev1.AddToScheme, Server: "vCenter", Copies: "clones", MaxCreations: 100,
		Class: class,
	},
	NewCluster:     func() *vspherev1.NovaVSphereCluster { return &vspherev1.NovaVSphereCluster{} },
	NewMachine:     func() *vspherev1.NovaVSphereMachine { return &vspherev1.NovaVSphereMachine{} },
	NewMachineList: func() client.ObjectList { return &vspherev1.NovaVSphereMachineList{} },
	NewTemplate:    func() *vspherev1.NovaVSphereMachineTemplate { return &vspherev1.NovaVSphereMachineTemplate{} },
	NewIdentity:    func() credentials.Identity { return &vspherev1.NovaVSphereIdentity{} },
	Connect: func(reader client.Reader, o provider.Options) provider.Connection[*vspherev1.NovaVSphereCluster, *vspherev1.NovaVSphereMachine, *vspherev1.NovaVSphereMachineTemplate] {
		return NewConnector(reader, Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace})
	},
}
