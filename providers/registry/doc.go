// Package registry lists the infrastructure providers of this project. Tools,
// generated files, documents and tests use the list.
//
// It links the SDKs of all providers, so no manager links it.
package registry
