package v1beta2

import (
	"cmp"
	"time"
)

const (
	// DefaultPuppetEnvironment is the default environment of catalogs.
	DefaultPuppetEnvironment = "production"
	// DefaultPuppetInterval is the default time between two runs of Puppet's agent.
	DefaultPuppetInterval = 30 * time.Minute
)

// PuppetFinalizer is the finalizer of the NovaConfig of a machine whose bootstrap data
// has a token for a Puppet server.
const PuppetFinalizer = "nova.bootstrap.cluster.x-k8s.io/puppet"

// Machine's ConfigurationApplied condition and corresponding reasons.
const (
	// ConfigurationAppliedCondition is true if the Puppet server of the platform has
	// configured the node. It is the condition of the same type of the Node. Machines
	// without a Puppet server do not have it. It can be a readiness gate.
	ConfigurationAppliedCondition = "ConfigurationApplied"

	// ConfigurationAppliedReason: the last catalog of the node is applied.
	//
	// Action: none.
	ConfigurationAppliedReason = "Applied"

	// NotEnrolledReason: the node has no certificate of the Puppet server yet.
	//
	// Action: read the log of the Puppet server; see
	// docs/configuration-manager.md#the-result-of-a-node.
	NotEnrolledReason = "NotEnrolled"

	// ResourceFailedReason: the resource in the message failed.
	//
	// Action: fix the control repository, or the node.
	ResourceFailedReason = "ResourceFailed"

	// RunFailedReason: the node got no catalog, or its run did not end in time.
	//
	// Action: check the Puppet server.
	RunFailedReason = "RunFailed"

	// PuppetNotFoundReason: the node image has no program puppet.
	//
	// Action: add puppet-agent to the node image.
	PuppetNotFoundReason = "PuppetNotFound"

	// ConfigurationNotReportedReason: the node has not reported a run yet.
	//
	// Action: wait. If the reason stays, read the journal of nova-puppet.service on the
	// node.
	ConfigurationNotReportedReason = "NotReported"
)

// ConfigurationManagerSpec is a Puppet server that configures nodes.
type ConfigurationManagerSpec struct {
	// server is the DNS name of the Puppet server, which its certificate must contain.
	// Nodes connect to its port 8140.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Server string `json:"server,omitempty"`

	// trustedCAFrom is the Secret or ConfigMap in the same namespace with the
	// certificate of the server's CA, in PEM.
	// +required
	TrustedCAFrom FileSource `json:"trustedCAFrom,omitempty,omitzero"`

	// environment is the environment of the nodes' catalogs. Defaults to production.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9_]+$`
	Environment string `json:"environment,omitempty"`

	// intervalSeconds is the time between two runs of Puppet's agent on a node.
	// Defaults to 1800.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
}

// GetEnvironment returns the environment or its default.
func (c *ConfigurationManagerSpec) GetEnvironment() string {
	return cmp.Or(c.Environment, DefaultPuppetEnvironment)
}

// GetInterval returns the interval or its default.
func (c *ConfigurationManagerSpec) GetInterval() time.Duration {
	return cmp.Or(time.Duration(c.IntervalSeconds)*time.Second, DefaultPuppetInterval)
}
