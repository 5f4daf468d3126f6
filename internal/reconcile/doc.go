// Package reconcile is the layer between controller-runtime and the reconcilers:
// their event sources, their retry intervals and the messages of failures in
// conditions.
//
// It decides nothing about machines or clusters. Every manager links it, so it
// imports neither the infrastructure API nor a driver.
package reconcile
