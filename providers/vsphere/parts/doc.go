// Package parts changes the parts of VMs whose requests many machines share: the
// rules and groups of compute clusters, tags, and custom attributes. A worker
// collects the changes that are due and sends them together. What a part should
// be comes from the package spec, and what it is from the inventory.
package parts
