// Package renderers tests the network configuration that guests get from the
// drivers, with each of the programs by which cloud-init sets a network up. It
// knows no cluster.
package renderers
