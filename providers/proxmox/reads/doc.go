// Package reads sends requests that single nodes of a Proxmox VE cluster answer. A node
// that does not answer delays no other one.
package reads
