// Package snapshots keeps snapshots of etcd in an S3-compatible bucket.
//
// A snapshot is two objects: <name>.db holds what etcd sent, <name>.json says
// what that is, with its size and hash. The second is written last, so a
// snapshot without it is none: an upload that was interrupted never looks
// whole. When the next snapshot is due and which ones may go are pure functions
// of what lies in the bucket, so nothing is lost with a manager's memory or an
// object's status.
//
// A place may see several clusters, one after the other under the same name. A
// snapshot says which history it is of, so that an empty etcd never passes for
// what the one before it held.
//
// The package refuses servers that are not verified, and never puts
// credentials into an error.
package snapshots
