// Package plan contains pure functions that compute the requests for the VM of
// a machine: the request that creates it, and the next step that changes the VM
// and its related objects to match the spec. It also converts the reports of
// the guest. The caller passes the IDs of referenced objects.
//
// The package sends no requests.
package plan
