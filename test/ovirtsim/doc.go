// Package ovirtsim runs an oVirt Engine for tests: its REST API over TLS, with
// the token endpoint in front and nothing but memory behind.
//
// It behaves. VMs, disks and templates go through the engine's states in times
// that can be set; what the engine refuses in a state is refused here, with
// the engine's status codes and in its words. Hosts have processors and memory
// and VMs are scheduled on them; storage domains fill up; a thin VM holds on
// to its template, a cloned one does not. Collections know the search
// language, paging, max and follow.
//
// A VM's initialization becomes the configuration drive the engine would make:
// its own cloud-config in front of the custom script, or Ignition for systems
// that want it. Guests get that drive when a VM is started, so that a real
// host can boot from it; they report their addresses back.
//
// Tokens expire, the engine restarts, answers are slow, lost or faults, all on
// demand and from another process as well (Control).
//
// Each request is compared with the model of the engine's API (api.txt): one that
// does not fit is refused, so that a client cannot rely on what a real engine
// ignores.
//
// The package refuses to speak JSON or version 3 of the API, to keep its
// inventory over a restart of the process, and to move bytes between storage
// domains.
package ovirtsim
