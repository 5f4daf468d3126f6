// Package prepare applies the settings of the operating system before kubeadm
// runs: kernel, disks, files, users, resolver, proxy, registries and clock.
//
// Each step can be repeated. No step destroys data: only an empty disk gets a
// partition table or a file system.
package prepare
