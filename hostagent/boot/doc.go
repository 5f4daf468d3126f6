// Package boot makes a machine a node on its first boot: it finds the node's
// addresses, applies the settings of the system, runs kubeadm, and reports each
// step to the hypervisor.
//
// The configuration and its credentials are only in memory. A machine that is
// reset before its end therefore cannot continue: the next start reports that.
// Only a reboot for kernel arguments keeps the configuration, until it is read.
//
// A failed join is repeated, at most ten times, without "kubeadm reset": a reset
// would stop a kubelet that may have joined, and cannot remove an added etcd
// member. Instead the next attempt continues from the state of the failed one.
// If the kubelet has its own certificate, only the phases after kubelet-start
// run; if the manifests of a control plane are complete, the phases after
// control-plane-prepare run, and kubeadm uses the etcd member that it added
// before; otherwise the few files that make a new attempt fail are deleted. etcd
// accepts one learner at a time: control plane machines that join at the same
// time wait for it in kubeadm, and by these repetitions if kubeadm's timeout is
// too short. kubeadm init is repeated only from the phases after control-plane
// on.
package boot
