// Package initlock makes sure that exactly one control plane machine of a
// cluster runs kubeadm init, ever.
//
// The lock is the ConfigMap <cluster>-lock, owned by the Cluster, so that
// "clusterctl move" takes it along. It names the machine that initialises and
// says once that is done. A NovaControlPlane gives it to one of its machines
// (Give) and the machines are told what that means for them (Told); under any
// other owner the first to ask takes it (Acquire).
//
// The package refuses to free a lock whose holder still exists, and one whose
// cluster was initialised, also when only a machine that joined it tells so;
// only when a whole control plane is gone is it reset.
package initlock
