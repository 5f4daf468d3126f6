// Package ovirt speaks to an oVirt engine: version 4 of its REST API in XML,
// for the few things that a driver asks.
//
// A Client is one account at one engine. It keeps connections alive and bounds
// their number, logs in once for all callers, logs in again when the engine
// has forgotten the token, gives every request a deadline, and says the
// engine's own words when it refuses. What is sent is escaped by
// encoding/xml, so a script with < and & arrives as it is.
//
// The package refuses to try anything twice but a request whose token had run
// out, to wait for work of the engine, to follow redirects, and to know what a
// machine is.
package ovirt
