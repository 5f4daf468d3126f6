// Package ovirtcsi runs the part of the oVirt CSI driver on nodes with real block
// devices: loop devices with the serial numbers that a hypervisor would give to
// them. The specs of csi-test check the interface, the others the cases in which the
// data of a volume could be lost. It needs root.
package ovirtcsi
