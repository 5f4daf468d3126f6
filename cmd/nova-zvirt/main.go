// Command nova-zvirt runs the zVirt provider: it reconciles the clusters,
// machines and machine templates of zVirt and oVirt engines.
package main

import (
	"github.com/nova-platform/cluster-api-provider-nova/controllers/infrastructure"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt"
)

func main() {
	infrastructure.Main(&zvirt.Provider)
}
