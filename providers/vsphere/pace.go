package vsphere

import (
	"strings"
	"time"
)

// pace is how patient a session is. Tests are less patient.
type pace struct {
	// request bounds every request but the long poll and slow ones.
	request time.Duration
	// poll is how long vCenter holds a long poll open without news. With
	// request on top a poll counts as dead.
	poll time.Duration
	// patience is how long callers wait for a session that is being opened
	// before they are sent away; a push fetches them back.
	patience time.Duration
	// An endpoint that is down is tried again at these intervals.
	firstRetry, lastRetry time.Duration
	// Credentials that were refused are tried again much later: vCenter locks
	// accounts out after a few bad logins within minutes.
	firstLogin, lastLogin time.Duration
	// settle is how long the inventory may lag behind what an answer said.
	settle time.Duration
	// gather is how long what can be asked for together is collected.
	gather time.Duration
	// reclone is how long no clone is requested for a machine whose last clone got
	// another instance UUID: each attempt copies the disks of the template.
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

// slowness is how many times longer a slow request may take than others.
const slowness = 6

// timeout bounds a request. vCenter under load takes a minute and more to choose
// datastores, to accept a clone, and to read storage policies.
func (p pace) timeout(method string) time.Duration {
	if method == "CloneVM_Task" || method == "RecommendDatastores" || strings.HasPrefix(method, "Pbm") {
		return slowness * p.request
	}
	return p.request
}
