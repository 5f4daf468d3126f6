// Package modules renders a set of modules and the facts of a Cluster into Flux
// objects, and plans which Clusters may be updated.
//
// The package is pure: types in, types out, no client, no clock, no context. It
// does not read or write anything, and does not know the origin of facts; that
// is the task of controllers/modules.
package modules
