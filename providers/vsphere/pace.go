package vsphere

import (
	"strings"
	"time"
)

// pace has the timeouts and intervals of a session. Tests use shorter ones.
type pace struct {
	// request is the timeout of every request except for the long poll and slow
	// requests.
	request time.Duration
	// poll is the time for which vCenter holds a long poll open without
	// updates. A poll without a response after poll and request has failed.
	poll time.Duration
	// patience is the longest time for which callers wait for a session that is
	// being opened. After that they get an error, and their machines are queued
	// once the session is open.
	patience time.Duration
	// firstRetry and lastRetry bound the intervals at which an endpoint that is
	// down is tried again.
	firstRetry, lastRetry time.Duration
	// firstLogin and lastLogin are the same for credentials that were refused,
	// and much longer: vCenter locks accounts after a few failed logins within
	// minutes.
	firstLogin, lastLogin time.Duration
	// settle is the longest time by which the inventory may lag behind a
	// response.
	settle time.Duration
	// gather is the time for which operations are collected that share a
	// request.
	gather time.Duration
	// reclone is the time for which no clone is requested for a machine whose
	// last clone got another instance UUID: each attempt copies the disks of
	// the template.
	reclone time.Duration
}

// usually is the pace for a real vCenter.
var usually = pace{
	// Stateful firewalls drop connections that are idle for a minute.
	request: 20 * time.Second, poll: 25 * time.Second, patience: 2 * time.Second,
	firstRetry: time.Second, lastRetry: 30 * time.Second,
	firstLogin: time.Minute, lastLogin: 5 * time.Minute,
	settle: 30 * time.Second, gather: 300 * time.Millisecond, reclone: 10 * time.Minute,
}

// slowness is the factor by which the timeout of a slow request is longer.
const slowness = 6

// timeout returns the timeout of a request. vCenter under load takes a minute
// and more to choose datastores, to accept a clone, and to read storage
// policies.
func (p pace) timeout(method string) time.Duration {
	if method == "CloneVM_Task" || method == "RecommendDatastores" || strings.HasPrefix(method, "Pbm") {
		return slowness * p.request
	}
	return p.request
}
