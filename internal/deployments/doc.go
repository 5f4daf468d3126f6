// Package deployments finds the MachineDeployments that use a NovaConfigTemplate, for
// the reconcilers of nova-bootstrap that depend on both.
package deployments
