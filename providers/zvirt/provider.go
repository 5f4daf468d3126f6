package zvirt

import (
	_ "embed"

	"sigs.k8s.io/controller-runtime/pkg/client"

	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
)

//go:embed class.tmpl
var class string

// Provider is the provider for zVirt and oVirt engines.
var Provider = provider.Provider[*zvirtv1.NovaZVirtCluster, *zvirtv1.NovaZVirtMachine, *zvirtv1.NovaZVirtMachineTemplate]{
	Info: provider.Info{
		Name: "zvirt", Title: "zVirt and oVirt", Kind: "NovaZVirt", AddToScheme: zvirtv1.AddToScheme, Server: "engine", Copies: "copies of disks", MaxCreations: 16,
		Class: class,
	},
	NewCluster:     func() *zvirtv1.NovaZVirtCluster { return &zvirtv1.NovaZVirtCluster{} },
	NewMachine:     func() *zvirtv1.NovaZVirtMachine { return &zvirtv1.NovaZVirtMachine{} },
	NewMachineList: func() client.ObjectList { return &zvirtv1.NovaZVirtMachineList{} },
	NewTemplate:    func() *zvirtv1.NovaZVirtMachineTemplate { return &zvirtv1.NovaZVirtMachineTemplate{} },
	NewIdentity:    func() credentials.Identity { return &zvirtv1.NovaZVirtIdentity{} },
	Connect: func(reader client.Reader, o provider.Options) provider.Connection[*zvirtv1.NovaZVirtCluster, *zvirtv1.NovaZVirtMachine, *zvirtv1.NovaZVirtMachineTemplate] {
		return NewConnector(reader, Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace, Fence: o.Fence})
	},
}
