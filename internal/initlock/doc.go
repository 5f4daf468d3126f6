// Package initlock makes sure that exactly one control plane machine of a
// cluster runs kubeadm init, ever.
//
// The lock is the ConfigMap <cluster>-lock, owned by the Cluster, so that
// "clusterctl move" takes it along. It names the machine that initialises and
// says once that is done. The package refuses to free a lock whose holder
// still exists, and one whose cluster was initialised, also when only a machine
// that joined it tells so.
package initlock
