package timelimits

import "time"

// Intervals. Most changes send an event; these are for states that send none.
const (
	// NextAction is the time until the next reconcile after an action, and until
	// a request is repeated whose permission has just been written.
	NextAction = 50 * time.Millisecond
	// ShortPoll is the interval for a state that changes within seconds: the
	// health probe, a connection to a cluster that starts and the permissions that
	// failed to be written then, a restore of etcd, a move of the endpoint's address, Secrets
	// that are garbage-collected. Two probes fail before a workload cluster
	// counts as unreachable, which detects an outage after about 6 s; Cluster
	// API's cluster cache needs 50 s. The flag --probe-period sets the interval
	// of the probe while nothing changes.
	ShortPoll = 2 * time.Second
	// LongPoll is the interval for a state that lasts, such as an unhealthy etcd,
	// a missing snapshot or workers that have to be deleted first, and the first
	// pause after a failed snapshot.
	LongPoll = 10 * time.Second
)

// Timeouts.
const (
	// DirectTimeout is the timeout for steps that must not delay others: a direct
	// connection to a node, the search for the cause of a failed probe, the wait
	// for a slot, the wait until an API server has applied new permissions.
	DirectTimeout = time.Second
	// ReadTimeout is the timeout for one health probe, and for the wait of a
	// reconcile for a workload cluster. A later response triggers an event.
	ReadTimeout = 2 * time.Second
	// CallTimeout is the timeout for a request to a workload cluster that may be
	// down.
	CallTimeout = 5 * time.Second
	// ConnectTimeout is the timeout for a connection to a machine that may be
	// deleted, for an inspection of all members of etcd, and for the removal of
	// the objects of a machine whose creation failed.
	ConnectTimeout = 10 * time.Second
	// StaleAfter is the time after which a result is not used any more although
	// the next one takes long, or a node does not seem to take the endpoint's
	// address. It is also the timeout for reading without caches.
	StaleAfter = 15 * time.Second
	// Reconnect is the time for a connection to recover, for instance after the
	// kubeconfig was renewed, the pause after permissions were written that a
	// request still lacks, and the pause during a restore.
	Reconnect = 30 * time.Second
	// RestoreTimeout is the time for a machine to restore a snapshot and to
	// initialize the control plane, from the creation of the machine. A machine
	// that joins has spec.platform.joinTimeoutSeconds instead.
	RestoreTimeout = 45 * time.Minute
)

// Grace periods, before a step that cannot be undone or that would be repeated.
const (
	// UnreachableGrace is the time without a response before a workload cluster
	// counts as unreachable: right after a start, the manager may not be able to
	// connect to any cluster.
	UnreachableGrace = time.Minute
	// Grace is the time for a state that is not known for sure: an API server
	// that responds and cannot be read, a join of etcd that began just before
	// its time limit. A machine that failed to restore is kept as long, because
	// the cause of an immediate failure makes the next one fail too.
	Grace = 5 * time.Minute
	// LongGrace is the time for which a deleted machine keeps the endpoint's
	// address while no other node can take it. A kubelet retries at least every
	// 5 minutes to pull an image or to restart a container. It is also the
	// longest pause after failed snapshots, and the time for which add-ons count
	// as synced, which a user may downgrade.
	LongGrace = 10 * time.Minute
	// OrphanGrace is the time for which a control plane Node without a Machine
	// must be down before its member of etcd and the Node are removed. A reboot
	// takes less.
	OrphanGrace = 15 * time.Minute
	// MaxRemediationPause is the longest pause between retries of a remediation,
	// unless spec.remediation.retryPeriodSeconds is longer.
	MaxRemediationPause = 30 * time.Minute
	// KubeVIPHandover is the time that kube-vip takes to move the address after
	// its lease was transferred: the new holder reads the lease within 2.2 s, and
	// the previous one releases the address 3 s after it failed to renew.
	KubeVIPHandover = 5 * time.Second
)

// Ages and lifetimes.
const (
	// Fresh is the time for which a result of a healthy etcd is reused while
	// nothing changes, the timeout for the response of a workload cluster, and
	// the pause before a failed renewal is repeated.
	Fresh = time.Minute
	// Hourly is the time for which facts are reused that hardly change, such as
	// the content of the bucket and the permissions of a manager, and for which
	// an unused connection is kept. A snapshot and its upload are bounded by it:
	// partial uploads are removed, and links to snapshots expire, after twice
	// the time.
	Hourly = time.Hour
	// Daily is the lifetime of a manager's certificate for a workload cluster,
	// which is longer than clocks differ, and the time for which a new machine
	// must stay up to date.
	Daily = 24 * time.Hour
	// KubeconfigTTL is the lifetime of the kubeconfig's certificate. It is
	// renewed after 2.8 days: a client that has read it has 4.2 days to read it
	// again, and this provider may be down or the cluster be paused as long.
	KubeconfigTTL = 7 * 24 * time.Hour
)
