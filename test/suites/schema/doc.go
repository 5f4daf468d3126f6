// Package schema asks the programs that read bootstrap data what they think of
// it: cloud-init and kubeadm judge every golden file of /bootstrap, and
// cloud-init the network configurations of /providers/vsphere, inside the root
// file system that test hosts boot from.
//
// It boots nothing, and it refuses to judge by itself.
package schema
