package vcenter

import (
	"strings"
	"time"
)

// Timeouts has the timeouts and intervals of a session. Tests use shorter ones.
type Timeouts struct {
	// Request is the timeout of every request except for the long poll and slow
	// requests.
	Request time.Duration
	// Poll is the time for which vCenter holds a long poll open without
	// updates. A poll without a response after poll and request has failed.
	Poll time.Duration
	// Wait is the longest time for which callers wait for a session that is
	// being opened. After that they get an error, and their machines are queued
	// once the session is open.
	Wait time.Duration
	// MinRetry and maxRetry bound the intervals at which an endpoint that is
	// down is tried again.
	MinRetry, MaxRetry time.Duration
	// MinLoginRetry and maxLoginRetry are the same for credentials that were
	// rejected, and much longer: vCenter locks accounts after a few failed logins
	// within minutes.
	MinLoginRetry, MaxLoginRetry time.Duration
	// Lag is the longest time by which the inventory may lag behind a
	// response.
	Lag time.Duration
	// BatchDelay is the time for which operations are collected that share a
	// request.
	BatchDelay time.Duration
	// RecloneDelay is the time for which no clone is requested for a machine whose
	// last clone got another instance UUID: each attempt copies the disks of
	// the template.
	RecloneDelay time.Duration
}

// DefaultTimeouts are the timeouts for a real vCenter.
var DefaultTimeouts = Timeouts{
	// Stateful firewalls drop connections that are idle for a minute.
	Request: 20 * time.Second, Poll: 25 * time.Second, Wait: 2 * time.Second,
	MinRetry: time.Second, MaxRetry: 30 * time.Second,
	MinLoginRetry: time.Minute, MaxLoginRetry: 5 * time.Minute,
	Lag: 30 * time.Second, BatchDelay: 300 * time.Millisecond, RecloneDelay: 10 * time.Minute,
}

// slowFactor is the factor by which the timeout of a slow request is longer.
const slowFactor = 6

// timeout returns the timeout of a request. vCenter under load takes a minute
// and more to choose datastores, to accept a clone, and to read storage
// policies.
func (p Timeouts) timeout(method string) time.Duration {
	if method == "CloneVM_Task" || method == "RecommendDatastores" || strings.HasPrefix(method, "Pbm") {
		return slowFactor * p.Request
	}
	return p.Request
}
