// Command nova-vsphere runs the vSphere provider: it reconciles the clusters,
// machines and machine templates of vCenter.
package main

import (
	"github.com/nova-platform/cluster-api-provider-nova/controllers/infrastructure"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere"
)

func main() {
	infrastructure.Main(&vsphere.Provider)
}
