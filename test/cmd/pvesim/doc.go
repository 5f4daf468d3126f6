// Command pvesim runs the simulator of a Proxmox VE cluster until it is
// interrupted. It prints the addresses of the nodes.
//
// All behavior is in package test/pvesim.
package main
