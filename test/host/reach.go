package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Find returns the disk of the virtual machine with a name, regardless of the
// process that powered its host on.
func (r *Runner) Find(name string) (disk string, err error) {
	disks, err := fileNames(r.Dir)
	if err != nil {
		return "", fmt.Errorf("finding host of %q: %w", name, err)
	}
	for _, disk := range disks {
		var spec Spec
		data, err := os.ReadFile(filepath.Join(r.Dir, disk, specFile))
		if err == nil {
			err = json.Unmarshal(data, &spec)
		}
		if err != nil {
			continue // no disk, or one that is being made
		}
		if spec.Name == name {
			return disk, nil
		}
	}
	return "", fmt.Errorf("finding host of %q: there is none", name)
}

// SetLinks cuts the network cards of the host with this disk off the bridge,
// or joins them again. A host that is off has none.
func (r *Runner) SetLinks(disk string, up bool) error {
	h, err := r.host(Spec{Disk: disk})
	if err != nil {
		return err
	}
	err = inNetns(h.netns, func() error {
		set := netlink.LinkSetDown
		if up {
			set = netlink.LinkSetUp
		}
		for i := range maxNICs {
			link, err := netlink.LinkByName(h.wireName(i))
			if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
				continue
			}
			if err == nil {
				err = set(link)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("switching links of host %s: %w", disk, err)
	}
	return nil
}
