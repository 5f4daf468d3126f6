// Package renderers tests what guests make of the network that the vSphere
// driver tells them, with each of the programs by which cloud-init sets a
// network up. It knows no cluster.
package renderers
