// Package approver approves or denies the certificate requests of the nodes in workload clusters.
//
// A request is approved if its credential belongs to a Machine of the cluster and the request names
// nothing but this Machine: its node, its addresses. Each decision is a pure function of the request
// and the Machines (decide.go). A request that other controllers decide is left to them.
//
// The package issues nothing: package bootstrap issues the credentials with which machines join, and
// kube-controller-manager signs the certificates. It never approves the addresses of another node or
// a second key for one credential.
package approver
