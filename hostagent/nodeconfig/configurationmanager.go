package nodeconfig

// ConfigurationManager is the Puppet server that configures a node.
type ConfigurationManager struct {
	// Server is the name of the server, and CA the certificate of its CA in PEM.
	Server string `json:"server"`
	CA     string `json:"ca"`
	// Environment is the environment of the node's catalogs.
	Environment string `json:"environment"`
	// IntervalSeconds is the time between two runs of the agent.
	IntervalSeconds int `json:"intervalSeconds"`
	// Certname is the name of the node's certificate.
	Certname string `json:"certname"`
	// Extensions are the trusted facts in the certificate, by Puppet's names.
	Extensions []Setting `json:"extensions"`
	// Token allows one key to get the certificate.
	Token string `json:"token,omitempty"`
}

// The condition of a Node about the runs of Puppet's agent, and its reasons.
// AppliedReason means that the last catalog is applied.
const (
	// ConfigurationCondition is true if the node has its configuration.
	ConfigurationCondition = "ConfigurationApplied"
	// NotEnrolledReason means that the node has no certificate yet. The agent repeats
	// the request.
	NotEnrolledReason = "NotEnrolled"
	// ResourceFailedReason means that a resource of the catalog failed.
	ResourceFailedReason = "ResourceFailed"
	// PuppetRunFailedReason means that the agent got no catalog, or did not end.
	PuppetRunFailedReason = "RunFailed"
	// PuppetNotFoundReason means that the node image has no Puppet.
	PuppetNotFoundReason = "PuppetNotFound"
)
