// Package fleet creates many control planes on Cluster API's in-memory infrastructure, of this
// project or of Cluster API itself, and reports their progress. It reads only the status fields
// that the contract requires of every control plane. It starts no program: the management cluster
// and its managers must exist.
package fleet
