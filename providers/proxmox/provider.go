package proxmox

import (
	_ "embed"

	"sigs.k8s.io/controller-runtime/pkg/client"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
)

//go:embed class.tmpl
var class string

// Provider is the provider for Proxmox VE.
var Provider = provider.Provider[*proxmoxv1.NovaProxmoxCluster, *proxmoxv1.NovaProxmoxMachine, *proxmoxv1.NovaProxmoxMachineTemplate]{
	Info: provider.Info{
		Name: "proxmox", Title: "Proxmox VE", Kind: "NovaProxmox", AddToScheme: proxmoxv1.AddToScheme, Server: "Proxmox VE cluster", Copies: "clones", MaxCreations: 8,
		Class: class,
	},
	NewCluster:     func() *proxmoxv1.NovaProxmoxCluster { return &proxmoxv1.NovaProxmoxCluster{} },
	NewMachine:     func() *proxmoxv1.NovaProxmoxMachine { return &proxmoxv1.NovaProxmoxMachine{} },
	NewMachineList: func() client.ObjectList { return &proxmoxv1.NovaProxmoxMachineList{} },
	NewTemplate:    func() *proxmoxv1.NovaProxmoxMachineTemplate { return &proxmoxv1.NovaProxmoxMachineTemplate{} },
	NewIdentity:    func() credentials.Identity { return &proxmoxv1.NovaProxmoxIdentity{} },
	Connect: func(reader client.Reader, o provider.Options) provider.Connection[*proxmoxv1.NovaProxmoxCluster, *proxmoxv1.NovaProxmoxMachine, *proxmoxv1.NovaProxmoxMachineTemplate] {
		return NewConnector(reader, Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace})
	},
}
