package zvirt

import (
	_ "embed"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
)

var (
	//go:embed class.tmpl
	class string
	//go:embed guest/report.sh
	guestFunctions string
)

// Provider is the provider for zVirt and oVirt engines.
var Provider = provider.Provider[*infrav1.NovaZVirtCluster, *infrav1.NovaZVirtMachine, *infrav1.NovaZVirtMachineTemplate]{
	Info: provider.Info{
		Name: "zvirt", Title: "zVirt and oVirt", Kind: "NovaZVirt", Server: "engine", Copies: "copies of disks", MaxCreations: 16,
		Class: class,
		Guest: provider.Guest{
			Vendors: `oVirt* | zVirt* | "Red Hat"* | RHEV*`,
			Report:  "report_ovirt", ReportSize: 230, Functions: guestFunctions,
		},
	},
	NewCluster:     func() *infrav1.NovaZVirtCluster { return &infrav1.NovaZVirtCluster{} },
	NewMachine:     func() *infrav1.NovaZVirtMachine { return &infrav1.NovaZVirtMachine{} },
	NewMachineList: func() client.ObjectList { return &infrav1.NovaZVirtMachineList{} },
	NewTemplate:    func() *infrav1.NovaZVirtMachineTemplate { return &infrav1.NovaZVirtMachineTemplate{} },
	NewIdentity:    func() credentials.Identity { return &infrav1.NovaZVirtIdentity{} },
	Connect: func(reader client.Reader, o provider.Options) provider.Connection[*infrav1.NovaZVirtCluster, *infrav1.NovaZVirtMachine, *infrav1.NovaZVirtMachineTemplate] {
		return NewConnector(reader, Options{MaxCreations: o.MaxCreations, Namespace: o.Namespace, Fence: o.Fence})
	},
}
