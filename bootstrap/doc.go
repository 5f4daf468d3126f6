// Package bootstrap renders what a machine is told on its first boot: facts
// in, one document out, for cloud-init or for Ignition.
//
// The #cloud-config document is plain: no jinja, no MIME parts, no compression,
// so that the same bytes work as VMware's guestinfo and behind the document
// that an oVirt engine puts in front. It has only the keys write_files and
// runcmd. Ignition's document has the same files, and a unit in place of
// runcmd. What a machine can only know at boot, its address and its provider
// ID, the script in node.sh finds out. What is to be there before kubeadm runs,
// disks, users, proxy, mirrors, the script in prepare.sh does: so it is the
// same in both formats, and no key hides one of an oVirt engine's.
//
// A join that failed is repeated, at most ten times, without "kubeadm reset":
// that would stop a kubelet which may have joined, and cannot take an announced
// etcd member back. Instead the script goes on from what the failed run left.
// With the kubelet's own certificate there, only the phases after kubelet-start
// are due; with a control plane's manifests complete, those after
// control-plane-prepare, where kubeadm uses the etcd member that it announced
// before; else the few files that stand in a fresh run's way are removed. Control
// plane machines that join at once take turns by kubeadm's own waiting for
// etcd's one place for a learner, and by these repetitions when that is not
// long enough. kubeadm init is never repeated.
//
// The package is pure. It refuses clients, contexts, clocks and random
// numbers: the same facts always make the same bytes.
package bootstrap
