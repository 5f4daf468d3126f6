// Package ovirtcsi is the part of the oVirt CSI driver on nodes: it formats,
// mounts and grows the disks that the driver's controller has attached to the VM.
//
// It finds a disk by its serial number, which the hypervisor sets to the ID of the
// disk, and the ID of a volume is that ID too. So it needs no connection to the
// engine, no credentials, and no permission in the cluster.
//
// The controller is OpenShift's ovirt-csi-driver, which runs in the management
// cluster. The names and IDs here are those that it uses.
//
// Limits: file systems are ext3, ext4 and XFS, made by the programs of the node. A
// disk that has anything on it is never formatted.
package ovirtcsi
