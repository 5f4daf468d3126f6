// Package nodegroup reports to cluster-autoscaler which labels and taints the
// nodes of a MachineDeployment will have, so that the autoscaler can select a
// MachineDeployment with a role for a scale-up from zero.
//
// CPU and memory of a machine are in the status of its infrastructure template.
// The bootstrap provider derives labels and taints from a NovaConfigTemplate,
// which the autoscaler does not read; it reads annotations of the
// MachineDeployment, and this package maintains them.
//
// The package refuses to change anything else in a MachineDeployment, to change
// a MachineDeployment that is not a node group, and to overwrite values that a
// user set.
package nodegroup
