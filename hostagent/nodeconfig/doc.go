// Package nodeconfig has the configuration that a node's host agent carries
// out. A manager writes it, and the agent on the machine reads it.
//
// It is plain data without clients and without defaults. A manager renders
// every value, so an agent needs to know no rule of the API, and a manager and
// an agent of different versions only have to agree on this format.
package nodeconfig
