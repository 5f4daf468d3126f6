// Package approver approves or denies the certificate requests of the nodes in workload clusters.
//
// A request is approved if its credential belongs to a Machine of the cluster and the request names
// nothing but this Machine: its node, its addresses. Each decision is a pure function of the request
// and the Machines (decide.go). A request that other controllers decide is left to them.
//
// kube-controller-manager signs the certificates. If the keys of a cluster's CAs are elsewhere, the
// package has approved requests signed there (sign.go), and decides those of control plane machines for
// the certificates that kubeadm makes otherwise (controlplane.go).
//
// The package issues no credentials: package bootstrap issues those with which machines join. It never approves the addresses of another node or
// a second key for one credential.
package approver
