// Package certificates lists the certificates of a control plane machine whose keys
// kubeadm does not make, because the keys of the CAs are elsewhere. It is the same
// list for the agent, which requests them, for nova-bootstrap, which approves
// requests, and for the roles of a vault, which signs them.
//
// Subjects, names and files are those of kubeadm 1.35 to 1.37.
package certificates
