// Package pki signs certificates for workload clusters.
//
// All signing uses one interface, Authority. Managed stores the CAs with their
// keys in the Secrets of Cluster API's contract; another implementation can
// sign elsewhere and store only certificates there. The package returns a CA
// key only as a file for a control plane machine, and never overwrites an
// existing Secret.
package pki
