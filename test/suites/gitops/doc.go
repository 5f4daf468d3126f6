// Package gitops runs the sample of a management repository as people who keep
// their clusters in Git do: Flux reconciles, and everything happens by commits.
package gitops
