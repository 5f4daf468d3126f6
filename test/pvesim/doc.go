// Package pvesim simulates a Proxmox VE cluster for tests: the REST API of each
// node over TLS, and the objects of the cluster in memory (package cluster).
//
// Each request is checked with the public schema of the API (package schema), so
// that a client cannot use a path, a parameter or a value that a real node
// rejects. Errors have the status codes, reason phrases and texts of Proxmox VE;
// connections end after an error, as there. Logins get tickets with CSRF tokens;
// API tokens can have fewer privileges than their user (package access).
//
// A node passes requests for another node on, and answers 595 for a node that is
// offline. VMs can have hosts of the test environment as machines: they boot
// from the ISO image in a drive of the VM (package iso), and report as guest
// agents.
//
// On demand, requests fail before or after they were performed, responses are
// late or lost, tasks fail, nodes go offline and storages are full; other
// processes can control this too (Control).
//
// The package does not simulate a second factor, WebSockets, and file formats of
// responses other than JSON. It does not keep its objects over a restart.
package pvesim
