// Command chaos disturbs a workload cluster and its infrastructure at random, again and again,
// while the cluster is scaled and rolled out. Then it reports whether the cluster is healthy, how
// often etcd lost its quorum, and how long the workload and the API were unavailable. The same seed
// gives the same order of actions; the state that they meet always differs a little.
//
// It performs no disturbance that no control plane can survive: a control plane host is disturbed
// only while all voters of etcd respond and the quorum does not need one of them, and at most one
// worker is disturbed at a time.
package main
