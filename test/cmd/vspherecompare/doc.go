// Command vspherecompare runs this project's vSphere provider and CAPV, one after the other,
// against the same vCenter simulator and prints the costs of machines for each of them: requests,
// time, processor time, memory, and the time until it notices a VM that was powered off externally.
//
// Each run has its own API server and vCenter, and nothing else: the command itself replaces
// Cluster API's core, in the same way for both, so only the infrastructure provider is measured.
// Both managers run as their components describe, under their own service accounts, with their
// default flags.
//
// The command boots no hosts and measures only creation and notice. It prints the results without a
// verdict. It needs root and Linux, because everything runs in its own namespaces, and ends with
// them.
package main
