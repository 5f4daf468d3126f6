// Package plan decides the next action for a control plane.
//
// Decide takes an observation and returns exactly one action with its reason.
// It is pure: the time is part of the observation. The caller carries the
// action out, observes again and calls Decide again. A crash between the
// decision and its effect therefore loses nothing.
//
// It guards these invariants: there is only one kubeadm init; etcd keeps a
// majority in the worst case (all learners promoted, all pending machines
// joined, and none of them responding); redundancy, that is as many healthy
// members of etcd and serving API servers as spec.replicas minus one; one
// remediation at a time, a bounded number of them, and each after the
// replacement of the last one; one machine replaced at a time. Its simulation
// (simulation_test.go) checks these rules in thousands of histories.
//
// It does not guess: it changes nothing while etcd cannot be reached or has no
// quorum. Only the deletion of a whole control plane and a restore, which
// discard the data of etcd, do not depend on it.
//
// A decision also contains why everything else waits (Hold) and how much is kept
// in sync meanwhile (Upkeep).
//
// The reconciler fills Input, carries out the one action and observes again.
package plan
