// Package bootstrap renders the bootstrap data of a machine from an Input, for
// cloud-init or for Ignition.
//
// The #cloud-config document is plain: no jinja, no MIME parts, no compression,
// so that the same bytes work as VMware's guestinfo and behind the document
// that an oVirt engine prepends. It has only the keys write_files and runcmd.
// Ignition's document has the same files, and a unit instead of runcmd. The
// script node.sh finds the values that are known only at boot: the address and
// the provider ID. The script prepare.sh sets up everything that kubeadm needs
// before: disks, users, proxy, mirrors. So the setup is the same in both
// formats, and no key replaces one of an oVirt engine.
//
// A failed join is repeated, at most ten times, without "kubeadm reset": a
// reset would stop a kubelet that may have joined, and cannot remove an added
// etcd member. Instead the script continues from the state of the failed run.
// If the kubelet has its own certificate, only the phases after kubelet-start
// run; if the manifests of a control plane are complete, the phases after
// control-plane-prepare run, and kubeadm uses the etcd member that it added
// before; otherwise the script deletes the few files that make a new run fail.
// etcd accepts one learner at a time: control plane machines that join at the
// same time wait for it in kubeadm, and by these repetitions if kubeadm's
// timeout is too short. kubeadm init is repeated only from the phases after
// control-plane on.
//
// The package is pure. It uses no clients, contexts, clocks and random numbers:
// the same input always gives the same bytes.
package bootstrap
