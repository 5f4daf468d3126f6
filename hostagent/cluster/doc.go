// Package cluster is the host agent's access to the API server of its cluster.
//
// Each request has a timeout, and a client only uses the credentials of the
// kubeconfig that it was made from: the machine's own until it has joined, its
// kubelet's or the administrator's afterwards.
package cluster
