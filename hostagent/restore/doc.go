// Package restore makes etcd start with the data of a snapshot. It runs before
// kubeadm init, and uses the etcd of the image that kubeadm will run: another
// version could write data that it cannot read.
package restore
