// Package joining defines the identity of a machine that joins a workload cluster: the names by which
// package bootstrap issues its credential and package approver recognizes it. It also checks whether
// this management cluster may issue or accept such credentials.
//
// The package issues and decides nothing.
package joining
