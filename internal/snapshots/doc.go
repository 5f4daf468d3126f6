// Package snapshots stores etcd snapshots in an S3-compatible bucket.
//
// A snapshot is two objects: <name>.db contains the data of etcd, <name>.json
// its description, with its size and hash. The second is written last, and a
// snapshot without it does not count: an interrupted upload never looks
// complete. Pure functions of the objects in the bucket compute when the next
// snapshot is due and which snapshots may be deleted, so nothing depends on a
// manager's memory or an object's status.
//
// A place may contain snapshots of several clusters, one after the other under
// the same name. A snapshot contains its history, so that an empty etcd is not
// mistaken for the one before it.
//
// The package rejects servers with unverified certificates, and never puts
// credentials into an error.
package snapshots
