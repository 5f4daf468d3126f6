// Package plan decides how the VM of a machine is created and how it looks, as
// pure functions over the list of guests, nodes and storages: its ID, the node, the
// clone, the configuration, the image with the bootstrap data, and the tags.
//
// It sends no request and imports no client other than for types.
package plan
