// Command vspherecompare runs this project's vSphere provider and CAPV, one
// after the other, against the same vCenter simulator and prints what machines
// cost each: requests, time, processor, memory, and how soon a VM that was
// powered off outside is noticed.
//
// Each run has an API server and a vCenter of its own, and nothing else: the
// command itself plays Cluster API's core, the same way for both, so only the
// infrastructure provider is measured. Both managers run as their components
// say, under their own service accounts, with the flags they ship with.
//
// The command refuses to boot hosts, to measure anything but creation and
// notice, and to judge: it prints, and a reader compares. It needs root and
// Linux, because everything runs in namespaces of its own, which take all of it
// along when they end.
package main
