// Package balancer runs a node's own load balancer for the API servers.
//
// HAProxy runs in a static pod, and the agent keeps its list of API servers up
// to date. The kubelet uses the load balancer only once it works. Without API
// servers in the list, HAProxy uses the endpoint of the cluster.
package balancer
