// Package host boots Linux hosts from the settings of virtual machines: real
// systemd as PID 1, cloud-init, containerd, kubelet and kubeadm, each host in
// its own namespaces and cgroups over a shared root file system. A hypervisor
// simulator uses it to run its virtual machines.
//
// Prepare builds the files from which hosts boot, a Network connects the hosts
// of one bed, a Runner powers hosts on, and Cleanup removes all parts of a bed
// from the computer, also after its process was killed. It finds the parts of a
// bed by their name: cgroups nova-<bed>, network namespace nova-<bed> and the
// bed's own directory.
//
// The package requires root and Linux. It rejects a host whose disk is in use
// by another host, and names that cannot be a file name. It does not know
// hypervisors, user data or clusters.
package host
