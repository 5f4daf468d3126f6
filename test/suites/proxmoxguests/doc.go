// Package proxmoxguests tests that the VMs of the simulated Proxmox VE cluster are
// real hosts: an action on a VM affects its host, the guest agent reports the state
// of the host, and cloud-init reads the image in a drive of its VM. It uses no
// cluster.
package proxmoxguests
