// Package nodegroup tells cluster-autoscaler which labels and taints the nodes
// of a MachineDeployment will have, so that it can scale one up from zero that
// serves a role.
//
// What a machine has of processors and memory stands in its infrastructure
// template. Its labels and taints are made by the bootstrap provider out of a
// NovaConfigTemplate, which the autoscaler does not read; it reads annotations
// of the MachineDeployment, and this package keeps them.
//
// The package refuses to change anything else of a MachineDeployment, to touch
// one that is no node group, and to overwrite what a user has said.
package nodegroup
