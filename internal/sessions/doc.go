// Package sessions keeps sessions with hypervisors.
//
// A Session is one login at one endpoint. One goroutine opens it, keeps it and
// reads from it; everybody else waits a moment for its verdict, or gets it at
// once: an endpoint that is down slows nobody. A Pool shares sessions between
// clusters, lets go of one that nobody uses any more, and of one whose
// credentials were changed. A Feed is the queue of keys that reconcilers
// watch.
//
// The package refuses to know how any hypervisor is spoken to.
package sessions
