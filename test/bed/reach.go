package bed

import (
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// runner finds the hosts of the bed. It boots none.
func (b *Bed) runner() *host.Runner { return &host.Runner{Bed: b.Name, Dir: b.Hosts()} }

// SetLinks pulls the network cables of a VM, or plugs them in again.
func (b *Bed) SetLinks(vm string, up bool) error {
	disk, err := b.runner().Find(vm)
	if err != nil {
		return err
	}
	return b.runner().SetLinks(disk, up)
}
