// Package cakeys finds private keys of certificate authorities in data of any
// kind: files, Secrets, bootstrap data, logs and memory.
package cakeys
