package bootstrap

// due is what a NovaConfig needs next.
type due string

const (
	// waitForInfrastructure: nothing until the infrastructure is provisioned.
	waitForInfrastructure due = "WaitForInfrastructure"
	// waitForEndpoint: nothing until the endpoint is known.
	waitForEndpoint due = "WaitForEndpoint"
	// write: make the data and store it.
	write due = "Write"
	// publish: the data stays as it is.
	publish due = "Publish"
)

// observed is what the decision depends on.
type observed struct {
	// stored: there is data.
	stored bool
	// stale: half of its certificate's life is over.
	stale bool
	// settled: the machine has joined, so the data was used.
	settled bool
	// infrastructure: the cluster's infrastructure is provisioned.
	infrastructure bool
	// endpoint: the cluster's endpoint is known.
	endpoint bool
}

// next decides what is due. Data is made once, made anew until the machine has
// joined, and never afterwards: credentials of a machine that has joined must
// not lie around again.
func next(o observed) due {
	switch {
	case o.settled, o.stored && !o.stale:
		return publish
	case !o.infrastructure:
		return waitForInfrastructure
	case !o.endpoint:
		return waitForEndpoint
	default:
		return write
	}
}
