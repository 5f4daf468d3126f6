// Package ovirt is a client of the oVirt engine's REST API: version 4 in XML,
// for the calls that a driver needs.
//
// A Client is one user at one engine. It keeps connections alive and limits
// their number, logs in once for all callers, logs in again when the token has
// expired, sets a deadline for every request, and returns the engine's own
// message for a failure. encoding/xml escapes the data, so a script with < and
// & is transferred unchanged.
//
// The package repeats no request except after an expired token, does not wait
// for jobs of the engine, does not follow redirects, and does not know
// machines.
package ovirt
