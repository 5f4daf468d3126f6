// Package host boots Linux hosts out of the settings of virtual machines: real
// systemd as PID 1, cloud-init, containerd, kubelet and kubeadm, each host in
// namespaces and cgroups of its own over one shared root file system. A
// hypervisor simulator uses it to give its virtual machines a body.
//
// Prepare makes what hosts boot from, a Network is the wire between the hosts
// of one bed, a Runner powers hosts on, and Cleanup removes all that a bed left
// on the machine, also after its process was killed. What belongs to a bed is
// found by its name: cgroups nova-<bed>, network namespace nova-<bed> and the
// bed's own directory.
//
// The package refuses to work without root and Linux, a host whose disk is in
// use by another host, and names that cannot be a file name. It does not know
// what a hypervisor is, what user data says, or what a cluster is.
package host
