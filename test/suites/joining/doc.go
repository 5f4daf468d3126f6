// Package joining holds the suite that boots hosts to see how machines become
// nodes: credentials that are good for one machine and once, certificates of
// kubelets, a kubeadm init that breaks off, and control planes of other
// providers. Its short part is one cluster: which certificates a worker gets and
// which it does not. The suite needs root and Linux, and fails saying so where
// they are missing.
package joining
