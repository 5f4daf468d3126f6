package files

import (
	"bytes"
	"fmt"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
)

// page returns the page of the documents that lists the providers.
func page(providers []*provider.Info) (map[string][]byte, error) {
	var out bytes.Buffer
	out.WriteString(`# Infrastructure providers

| provider of clusterctl | hypervisor | kinds | provider ID of a node | ClusterClass | default of ` + "`--max-creations`" + ` |
|---|---|---|---|---|---|
`)
	for _, p := range providers {
		_, err := fmt.Fprintf(&out, "| `%s` | %s | %sCluster, %sMachine and their Templates, %sIdentity | `%s://` and the ID of the VM | `%s` | %d per %s |\n",
			p.Manager(), p.Title, p.Kind, p.Kind, p.Kind, p.Name, p.Manager(), p.MaxCreations, p.Server)
		if err != nil {
			return nil, err
		}
	}
	return map[string][]byte{"docs/reference/providers.md": out.Bytes()}, nil
}
