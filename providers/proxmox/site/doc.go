// Package site keeps the session with a Proxmox VE cluster, and the state of its
// guests.
//
// One list of all guests, nodes and storages serves all machines. Proxmox VE pushes
// nothing, so the list is polled, more often while a VM changes. Requests start tasks;
// one list of tasks shows their results. The status of guests in the list is some
// seconds old. The driver requests it from each node too, and prefers that status, and a
// result of a task, until the list confirms it. It requests the addresses from the guest agent of a VM until it reports some, and seldom
// after that.
package site
