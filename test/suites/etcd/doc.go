// Package etcd holds the suite that loses control planes on hosts and restores them: from a
// snapshot in a real S3 server, and from one surviving member. It also has control planes with
// external etcd. The short part loses a control plane of one machine. The suite needs root and
// Linux, and fails with a message if they are missing.
package etcd
