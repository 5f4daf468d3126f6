// Package schema validates bootstrap data with the programs that read it: cloud-init and kubeadm
// check every golden file of /bootstrap, and cloud-init checks the network configurations of
// /providers/vsphere, inside the root file system that test hosts boot from.
//
// It boots no host, and it contains no validation of its own.
package schema
