// Package pve is a client of the API of Proxmox VE.
//
// It knows requests, credentials and errors, and no machines. It limits
// concurrent requests, the size of responses and the duration of requests, and
// its errors have the text of Proxmox VE and no credentials. The reasons for an
// own client are in docs/adr/0054-a-client-for-proxmox-ve.md.
package pve
