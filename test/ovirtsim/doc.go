// Package ovirtsim simulates an oVirt Engine for tests: its REST API over TLS
// with the token endpoint, and an inventory in memory.
//
// It simulates the behavior of the engine. VMs, disks and templates pass
// through the engine's states in configurable times. Requests that the engine
// rejects in a state are rejected here with its status codes and messages.
// Hosts have processors and memory, and VMs are scheduled on them. Storage
// domains fill up. A thin VM depends on its template, a cloned VM does not.
// Collections support the search language, paging, max and follow.
//
// A VM's initialization becomes the configuration drive of the engine: the
// engine's own cloud-config in front of the custom script, or Ignition for
// operating systems that use it. Guests get that drive when a VM is started, so
// that a real host can boot from it. They report their addresses.
//
// On demand, tokens expire, the engine restarts, and responses are slow, lost
// or errors; other processes can control this too (Control).
//
// Each request is compared with the model of the engine's API (api.txt). A
// request that does not match the model is rejected, so that a client cannot
// rely on fields that a real engine ignores.
//
// The package does not support JSON or version 3 of the API, does not keep its
// inventory over a restart of the process, and does not move data between
// storage domains.
package ovirtsim
