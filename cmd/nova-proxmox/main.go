// Command nova-proxmox runs the Proxmox VE provider: it reconciles the clusters,
// machines and machine templates of Proxmox VE.
package main

import (
	"github.com/nova-platform/cluster-api-provider-nova/controllers/infrastructure"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox"
)

func main() {
	infrastructure.Main(&proxmox.Provider)
}
