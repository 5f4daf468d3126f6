package v1beta2

// Cluster's events.
const (
	// ClusterProfileConflictEventReason: the ClusterProfile of the Cluster is not written,
	// because another manager owns an object of this name.
	//
	// Action: delete that ClusterProfile or rename the Cluster. See docs/clusterprofiles.md.
	ClusterProfileConflictEventReason = "ClusterProfileConflict"
)
