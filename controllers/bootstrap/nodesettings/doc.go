// Package nodesettings stores the desired settings of nodes in their workload
// cluster, and reads the reports of the host agents about them.
//
// Everything in the workload cluster is owned by the Node that it is for, so it is
// deleted with it.
package nodesettings
