package cluster

import (
	"maps"
	"slices"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// listNetworks handles GET /nodes/{node}/network. Users without the privilege
// for a network do not see it.
func listNetworks(q *call) (any, error) {
	list := []map[string]any{}
	kind := q.text("type")
	audit := q.c.access.Has(q.user, "/nodes/"+q.node.Name, "Sys.Audit")
	for _, bridge := range q.node.Bridges {
		if kind != "" && kind != "bridge" && kind != "any_bridge" && kind != "any_local_bridge" && kind != "include_sdn" {
			continue
		}
		if audit || q.c.access.HasBelow(q.user, "/sdn/zones/localnetwork/"+bridge, "SDN.Audit", "SDN.Use") {
			list = append(list, map[string]any{"iface": bridge, "type": "bridge", "active": 1, "autostart": 1, "bridge_vlan_aware": 1})
		}
	}
	if kind == "any_bridge" || kind == "include_sdn" {
		for _, vnet := range q.c.spec.VNets {
			if q.c.access.HasBelow(q.user, joinPath("/sdn/zones", vnet.Zone, vnet.Name), "SDN.Audit", "SDN.Use") {
				list = append(list, map[string]any{"iface": vnet.Name, "type": "vnet", "active": 1})
			}
		}
	}
	return list, nil
}

// listVNets handles GET /cluster/sdn/vnets.
func listVNets(q *call) (any, error) {
	list := []map[string]any{}
	for _, vnet := range q.c.spec.VNets {
		if !q.c.access.HasBelow(q.user, joinPath("/sdn/zones", vnet.Zone, vnet.Name), "SDN.Audit", "SDN.Allocate") {
			continue
		}
		entry := map[string]any{"vnet": vnet.Name, "zone": vnet.Zone, "type": "vnet"}
		if vnet.Tag != 0 {
			entry["tag"] = vnet.Tag
		}
		list = append(list, entry)
	}
	return list, nil
}

// listZones handles GET /cluster/sdn/zones.
func listZones(q *call) (any, error) {
	zones := map[string]bool{}
	for _, vnet := range q.c.spec.VNets {
		zones[vnet.Zone] = true
	}
	list := []map[string]any{}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		if q.c.access.RequireAny(q.user, "/sdn/zones/"+zone, "SDN.Audit", "SDN.Allocate") == nil {
			list = append(list, map[string]any{"zone": zone, "type": "vlan"})
		}
	}
	return list, nil
}

// mapping returns a mapping of PCI devices, or nil.
func (c *Cluster) mapping(id string) *MappingSpec {
	for i := range c.spec.Mappings {
		if c.spec.Mappings[i].ID == id {
			return &c.spec.Mappings[i]
		}
	}
	return nil
}

// show is a mapping as the API has it.
func (m *MappingSpec) show() map[string]any {
	paths := []string{}
	for _, node := range slices.Sorted(maps.Keys(m.Paths)) {
		paths = append(paths, "id=10de:2684,node="+node+",path="+m.Paths[node])
	}
	return map[string]any{"id": m.ID, "description": "", "map": paths}
}

// listMappings handles GET /cluster/mapping/pci.
func listMappings(q *call) (any, error) {
	list := []map[string]any{}
	for i := range q.c.spec.Mappings {
		m := &q.c.spec.Mappings[i]
		if q.c.access.RequireAny(q.user, "/mapping/pci/"+m.ID, "Mapping.Modify", "Mapping.Use", "Mapping.Audit") != nil {
			continue
		}
		entry := m.show()
		if q.has("check-node") {
			entry["checks"] = []any{}
			if m.Paths[q.text("check-node")] == "" {
				entry["checks"] = []any{map[string]any{"severity": "warning", "message": "No mapping for node " + q.text("check-node")}}
			}
		}
		list = append(list, entry)
	}
	return list, nil
}

// getMapping handles GET /cluster/mapping/pci/{id}.
func getMapping(q *call) (any, error) {
	m := q.c.mapping(q.text("id"))
	if m == nil {
		return nil, schema.Failed("mapping '%s' not found", q.text("id"))
	}
	return m.show(), nil
}
