// Package certificates keeps the certificate authorities and the kubeconfig of a
// workload cluster, and the connection to external etcd.
package certificates
