package bootstrap

// dataAction is the next step for a NovaConfig.
type dataAction string

const (
	// waitForInfrastructure waits until the infrastructure is provisioned.
	waitForInfrastructure dataAction = "WaitForInfrastructure"
	// waitForEndpoint waits until the endpoint is known.
	waitForEndpoint dataAction = "WaitForEndpoint"
	// write creates the data and stores it.
	write dataAction = "Write"
	// publish keeps the data as it is.
	publish dataAction = "Publish"
)

// observed is the input of the decision.
type observed struct {
	// stored means that the data exists.
	stored bool
	// stale means that half of the certificate's life is over.
	stale bool
	// joined means that the machine has joined, so the data was used.
	joined bool
	// infrastructure means that the cluster's infrastructure is provisioned.
	infrastructure bool
	// endpoint means that the cluster's endpoint is known.
	endpoint bool
}

// next decides the due step. Data is created once, is renewed until the machine has joined, and is
// never created afterwards: credentials of a machine that has joined must not be stored again.
func next(o observed) dataAction {
	switch {
	case o.joined, o.stored && !o.stale:
		return publish
	case !o.infrastructure:
		return waitForInfrastructure
	case !o.endpoint:
		return waitForEndpoint
	default:
		return write
	}
}
