// Package files writes the files that follow from the list of infrastructure
// providers: their folders in config, the parts of scripts and of monitoring
// that name them, and a page of the documents.
//
// It does not write CRDs, which controller-gen makes from the API types.
package files
