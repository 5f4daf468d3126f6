// Package fleet makes many control planes on Cluster API's in-memory
// infrastructure, of this project or of Cluster API itself, and tells how far
// they are. It reads only what the contract says of every control plane. It
// refuses to start anything: the management cluster and its managers are there.
package fleet
