package vsphere

import (
	_ "embed"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

var (
	//go:embed guest/provider-id.sh
	guestProviderID string
	//go:embed class.tmpl
	class string
	//go:embed guest/report.sh
	guestFunctions string
)

// Provider is the provider for vCenter.
var Provider = provider.Provider[*infrav1.NovaVSphereCluster, *infrav1.NovaVSphereMachine, *infrav1.NovaVSphereMachineTemplate]{
	Info: provider.Info{
		Name: vcenter.ProviderName, Title: "vSphere", Kind: "NovaVSphere", Server: "vCenter", Copies: "clones", MaxCreations: 100,
		Class: class,
		Guest: provider.Guest{
			Vendors:    `VMware*`,
			ProviderID: guestProviderID,
			Report:     "report_vmware", ReportSize: 1800, Functions: guestFunctions,
		},
	},
	NewCluster:     func() *infrav1.NovaVSphereCluster { return &infrav1.NovaVSphereCluster{} },
	NewMachine:     func() *infrav1.NovaVSphereMachine { return &infrav1.NovaVSphereMachine{} },
	NewMachineList: func() client.ObjectList { return &infrav1.NovaVSphereMachineList{} },
	NewTemplate:    func() *infrav1.NovaVSphereMachineTemplate { return &infrav1.NovaVSphereMachineTemplate{} },
	NewIdentity:    func() credentials.Identity { return &infrav1.NovaVSphereIdentity{} },
	Connect: func(reader client.Reader, o provider.Options) provider.Connection[*infrav1.NovaVSphereCluster, *infrav1.NovaVSphereMachine, *infrav1.NovaVSphereMachineTemplate] {
		return NewConnector(reader, Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace})
	},
}
