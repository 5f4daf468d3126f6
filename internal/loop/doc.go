// Package loop holds what the reconcilers of infrastructure share: what wakes
// them, how fast they try again and how a failure reads in a condition.
//
// It decides nothing about machines or clusters and calls no hypervisor.
package loop
