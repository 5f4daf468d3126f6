// Package modules turns a set of modules and the facts of a Cluster into
// objects of Flux, and says which Clusters may take a change.
//
// All of it is pure: types in, types out, no client, no clock, no context. It
// refuses to read or write anything, and to know where facts come from; that
// is the business of controllers/modules.
package modules
