// Package plan decides what a control plane needs next.
//
// Decide takes what was observed and returns exactly one action with its
// reason. It is pure: the time is part of what was observed, and whoever asks
// carries the action out, observes again and asks again. A crash between the
// decision and its effect therefore loses nothing.
//
// What it guards: one kubeadm init, ever; a majority of etcd in the worst
// case (learners promoted and machines still to come joined, and none of them
// answering); redundancy, that is as many healthy members of etcd and serving API
// servers as the spec asks for minus one; one remediation at a time, not for
// ever, and after the replacement of the last one; one machine replaced at a
// time. Its simulation (simulation_test.go) plays thousands of histories against
// these rules.
//
// It refuses to guess: it changes nothing while etcd cannot be asked, nothing
// without a quorum, and it knows nothing of how a control plane as a whole is
// deleted, which asks nothing of etcd.
//
// The reconciler above it fills Input, carries the one action out and looks
// again.
package plan
