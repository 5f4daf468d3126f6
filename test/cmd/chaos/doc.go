// Command chaos kills what a tenant cluster stands on, at random and again and
// again, while the cluster is scaled and rolled out, and then says whether it
// is healthy, how often etcd lost its quorum, and how long the workload and the
// API were away. The same seed gives the same order of what is done; what it
// meets is never quite the same.
//
// It refuses to do what no control plane can survive: a control plane host is
// only disturbed while all voters of etcd answer and one of them can be spared,
// and no more than one worker is disturbed at a time.
package main
