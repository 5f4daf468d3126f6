package ovirtsim

import "slices"

// quota limits the resources of new objects in a data center. A data center
// that has quotas enforces them.
type quota struct {
	meta

	dataCenter string
	limit      int64
}

// QuotaSpec is a quota of a data center.
type QuotaSpec struct {
	Name string `json:"name"`
	// DataCenter is Default, if empty.
	DataCenter string `json:"dataCenter,omitempty"`
	// StorageGiB is how much its disks may have together; any size, if zero.
	StorageGiB int64 `json:"storageGiB,omitempty"`
}

// share is a CPU profile of a cluster or a disk profile of a storage domain.
type share struct {
	meta

	of string
}

func (s *Server) quotaRoutes() map[string]handler {
	return map[string]handler{
		"GET datacenters/{}/quotas": func(q *request) (*elem, error) {
			return list(q, "quotas", s.quotas.where(func(o *quota) bool { return o.dataCenter == q.args[0] }), quotaElem)
		},
		"GET cpuprofiles": func(q *request) (*elem, error) {
			return list(q, "cpu_profiles", s.cpuProfiles.items, shareElem("cpu_profile", "cpuprofiles", "cluster", "clusters"))
		},
		"GET diskprofiles": func(q *request) (*elem, error) {
			return list(q, "disk_profiles", s.diskProfiles.items, shareElem("disk_profile", "diskprofiles", "storage_domain", "storagedomains"))
		},
	}
}

func quotaElem(o *quota) *elem {
	e := el("quota").at(apiPath+"/datacenters/"+o.dataCenter+"/quotas/"+o.id, o.id)
	return e.add(o.elems()...).add(ref("data_center", "datacenters", o.dataCenter))
}

func shareElem(name, collection, owner, owners string) func(*share) *elem {
	return func(o *share) *elem {
		return el(name).at(apiPath+"/"+collection+"/"+o.id, o.id).add(o.elems()...).add(ref(owner, owners, o.of))
	}
}

// fillQuotas makes quotas, and profiles: one of each cluster and storage domain
// with its name, and those of the inventory.
func (s *Server) fillQuotas(inventory Inventory) error {
	for _, spec := range inventory.Quotas {
		dc, err := place(&s.dataCenters, spec.DataCenter)
		if err != nil {
			return err
		}
		s.quotas.add(&quota{meta: newMeta(spec.Name), dataCenter: dc.id, limit: spec.StorageGiB * gib})
	}
	for _, cl := range s.clusters.items {
		for _, name := range append([]string{cl.name}, inventory.CPUProfiles...) {
			s.cpuProfiles.add(&share{meta: newMeta(name), of: cl.id})
		}
	}
	for _, d := range s.domains.items {
		for _, name := range append([]string{d.name}, inventory.DiskProfiles...) {
			s.diskProfiles.add(&share{meta: newMeta(name), of: d.id})
		}
	}
	return nil
}

// checkQuota rejects objects that no quota of a data center covers.
func (s *Server) checkQuota(id, dataCenter string, size int64, action, kind string) error {
	if id == "" && !s.enforcesQuota(dataCenter) {
		return nil
	}
	o, ok := s.quotas.get(id)
	if !ok || o.dataCenter != dataCenter {
		return conflict("Cannot %s %s. Quota is not valid.", action, kind)
	}
	for _, d := range s.disks.items {
		if d.quota == id {
			size += d.provisioned
		}
	}
	if o.limit > 0 && size > o.limit {
		return conflict("Cannot %s %s. Quota has no sufficient storage resources.", action, kind)
	}
	return nil
}

// enforcesQuota reports whether a data center has quotas.
func (s *Server) enforcesQuota(dataCenter string) bool {
	return slices.ContainsFunc(s.quotas.items, func(o *quota) bool { return o.dataCenter == dataCenter })
}

// checkProfile refuses a profile of another cluster or storage domain.
func checkProfile(all *table[*share], id, of, kind string) error {
	if id == "" {
		return nil
	}
	if o, ok := all.get(id); !ok || o.of != of {
		return missingEntity(kind, id)
	}
	return nil
}

// checkTPM refuses a TPM without UEFI.
func (c *config) checkTPM() error {
	bios := c.rest["bios"].str("type")
	if e := c.rest["tpm_enabled"]; e != nil && e.text == "true" && bios != "q35_ovmf" && bios != "q35_secure_boot" {
		return conflict("Cannot add VM. TPM device requires UEFI firmware; the BIOS type is %s.", bios)
	}
	return nil
}
