// Package clusterctl tests the providers as clusterctl's users meet them: the
// real program installs them from a release, generates, describes, moves and
// upgrades.
package clusterctl
