// Package parts changes the parts of VMs whose requests many machines share: the
// rules and groups of compute clusters, tags, and custom attributes. A worker
// collects the changes that are due and sends them together. The desired state
// of a part comes from the package spec, the observed one from the inventory.
package parts
