package joining

const (
	// Group is the group that may join, with one approved request per machine. It is not kubeadm's
	// group, whose requests are all approved. The groups of a bootstrap token must have this prefix.
	Group = "system:bootstrappers:nova"
	// UserPrefix is the prefix of the user names of machines. The first UID of the machine follows
	// it.
	UserPrefix = "nova:machine:"
	// TokenUserPrefix is the prefix of the names of users with a bootstrap token.
	TokenUserPrefix = "system:bootstrap:"
	// TokenNamePrefix is the prefix of the names of the token Secrets.
	TokenNamePrefix = "bootstrap-token-"
	// TokenMachineAnnotation on the token is the first UID of the Machine that it belongs to.
	TokenMachineAnnotation = "nova.bootstrap.cluster.x-k8s.io/machine-uid"
	// JoinerAnnotation is the UID for which the credential in the data was issued: the UID that the
	// Machine had when the data was first created. A move changes the Machine's UID, and its VM may
	// have the data already.
	JoinerAnnotation = "nova.bootstrap.cluster.x-k8s.io/joiner"
)
