// Package keys makes the keys of a control plane machine and has their certificates
// signed, if the keys of the cluster's CAs are not on the machine.
//
// A vault signs on the machine that initializes the cluster. On all others, and for
// renewals, a CertificateSigningRequest in the cluster is approved and signed. Each
// certificate is compared with the request before it is used. An interrupted attempt
// continues with the keys and certificates that exist.
package keys
