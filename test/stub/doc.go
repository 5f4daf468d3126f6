// Package stub is an infrastructure provider that the project does not have. It
// has a description, kinds and a driver, and touches no file of the product: its
// test shows that adding a provider needs no more than that.
//
// Its hypervisor is in memory, and its kinds have the fields of vSphere's. No
// image and no release contains it.
package stub
