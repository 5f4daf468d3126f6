// Package sessions manages sessions with hypervisors.
//
// A Session is one login at one endpoint. One goroutine opens it, keeps it open
// and reads from it; all callers wait a moment for the result, or get it
// immediately: an endpoint that is down delays no caller. A Pool shares
// sessions between clusters, and closes unused sessions and those whose
// credentials were changed. A Feed is the queue of keys that reconcilers watch.
//
// The package does not depend on the protocol of any hypervisor.
package sessions
