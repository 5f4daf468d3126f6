// Package resolve resolves the names in machines and clusters to objects of a
// vCenter. A Cache has the results of one session, which all clusters share. A
// Resolver resolves names of one cluster, within the bounds of its identity.
package resolve
