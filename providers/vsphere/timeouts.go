package vsphere

import (
	"strings"
	"time"
)

// timeouts has the timeouts and intervals of a session. Tests use shorter ones.
type timeouts struct {
	// request is the timeout of every request except for the long poll and slow
	// requests.
	request time.Duration
	// poll is the time for which vCenter holds a long poll open without
	// updates. A poll without a response after poll and request has failed.
	poll time.Duration
	// wait is the longest time for which callers wait for a session that is
	// being opened. After that they get an error, and their machines are queued
	// once the session is open.
	wait time.Duration
	// minRetry and maxRetry bound the intervals at which an endpoint that is
	// down is tried again.
	minRetry, maxRetry time.Duration
	// minLoginRetry and maxLoginRetry are the same for credentials that were
	// rejected, and much longer: vCenter locks accounts after a few failed logins
	// within minutes.
	minLoginRetry, maxLoginRetry time.Duration
	// lag is the longest time by which the inventory may lag behind a
	// response.
	lag time.Duration
	// batchDelay is the time for which operations are collected that share a
	// request.
	batchDelay time.Duration
	// recloneDelay is the time for which no clone is requested for a machine whose
	// last clone got another instance UUID: each attempt copies the disks of
	// the template.
	recloneDelay time.Duration
}

// defaultTimeouts are the timeouts for a real vCenter.
var defaultTimeouts = timeouts{
	// Stateful firewalls drop connections that are idle for a minute.
	request: 20 * time.Second, poll: 25 * time.Second, wait: 2 * time.Second,
	minRetry: time.Second, maxRetry: 30 * time.Second,
	minLoginRetry: time.Minute, maxLoginRetry: 5 * time.Minute,
	lag: 30 * time.Second, batchDelay: 300 * time.Millisecond, recloneDelay: 10 * time.Minute,
}

// slowFactor is the factor by which the timeout of a slow request is longer.
const slowFactor = 6

// timeout returns the timeout of a request. vCenter under load takes a minute
// and more to choose datastores, to accept a clone, and to read storage
// policies.
func (p timeouts) timeout(method string) time.Duration {
	if method == "CloneVM_Task" || method == "RecommendDatastores" || strings.HasPrefix(method, "Pbm") {
		return slowFactor * p.request
	}
	return p.request
}
