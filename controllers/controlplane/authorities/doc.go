// Package authorities rotates the CAs of a workload cluster without downtime.
//
// The Secrets of the contract contain the whole state: one certificate, or two of
// which the first one signs. Machines are changed to each state as a rollout does, and
// the next step waits until all Nodes have the label with its ID.
package authorities
