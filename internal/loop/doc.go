// Package loop contains the common parts of the infrastructure reconcilers:
// their event sources, their retry intervals and the messages of failures in
// conditions.
//
// It decides nothing about machines or clusters and calls no hypervisor.
package loop
