// Package etcd holds the suite that loses control planes on hosts and brings
// them back: from a snapshot in a real S3 server, and from one surviving member.
// It also has control planes whose etcd somebody else runs.
// The short part loses a control plane of one machine. The suite needs root and
// Linux, and fails saying so where they are missing.
package etcd
