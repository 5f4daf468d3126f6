// Package etcdbackup takes snapshots of the etcd of control planes and prepares
// their restore.
//
// SnapshotReconciler streams a snapshot of a member through the API server of
// the workload cluster into a bucket, on a schedule or when an annotation
// requests it, and removes old ones. The due time follows from the contents of
// the bucket. It has its own workers, so that an upload that takes minutes does
// not delay the reconciles of control planes.
//
// RestoreReconciler finds and verifies the snapshot of a NovaEtcdRestore, or
// takes a snapshot of a surviving member past the API server, and reports the
// progress of the restore. Only the control plane's reconciler creates and
// deletes machines: it reads the prepared restore from a Secret with the
// restore's name, and the init lock names the restore in progress.
//
// The package refuses to restore a snapshot whose hash is unknown, and to give
// out credentials of the bucket: a machine gets a URL that is valid for a
// limited time.
package etcdbackup
