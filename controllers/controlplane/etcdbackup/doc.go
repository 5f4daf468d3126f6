// Package etcdbackup takes snapshots of the etcd of control planes and prepares
// their restore.
//
// SnapshotReconciler streams a snapshot of a member through the tenant's API
// server into a bucket, when the schedule or an annotation says so, and removes
// old ones. Which is due follows from what lies in the bucket. It has workers of
// its own, so that an upload that takes minutes keeps no control plane waiting.
//
// RestoreReconciler finds and verifies what a NovaEtcdRestore asks for, or takes
// a snapshot of a surviving member past the API server, and tells how far the
// restore is. The machines are the control plane's reconciler's alone: what is
// prepared lies in a Secret beside the restore, and what is under way stands in
// the init lock.
//
// The package refuses to restore anything whose hash is not known, and to give
// out credentials of the bucket: a machine gets a URL that is good for a while.
package etcdbackup
