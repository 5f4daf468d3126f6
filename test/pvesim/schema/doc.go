// Package schema checks requests against the public schema of the Proxmox VE
// API, as a node checks them: the path, the names of the parameters, their types
// and formats, and the texts of the errors.
//
// api.jsonl has one operation in each line: path, method, privileges, parameters
// and types of the response. These facts are from api-viewer/apidata.js of
// github.com/proxmox/pve-docs, commit e5010dc (30 April 2026), without
// descriptions. It has the operations that the simulator supports. formats.json
// has the formats of property strings that the published schema only names, from
// github.com/proxmox/qemu-server, commit e6352be.
//
// The rules are those of PVE::JSONSchema and PVE::RESTHandler of
// github.com/proxmox/pve-common. Not checked are permissions: package access
// does that.
package schema
