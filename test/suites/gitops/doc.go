// Package gitops runs the sample of a management repository in the way of users who keep their
// clusters in Git: Flux reconciles, and every change is a commit.
package gitops
