package scope

import (
	"time"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

// Config is the configuration of a Reconciler and of its parts.
type Config struct {
	// Client may read from a cache, but not Secrets and ConfigMaps.
	Client client.Client
	// APIReader reads from the API server, where a cache could be outdated.
	APIReader client.Reader
	// Authority signs certificates for the workload clusters.
	Authority pki.Authority
	// Rotator rotates the CAs of workload clusters. If nil, they are never rotated.
	Rotator pki.Rotator
	// WorkloadClusters accesses the workload clusters.
	WorkloadClusters WorkloadClusters
	// Recorder records events.
	Recorder events.EventRecorder
	// Fence keeps control planes of another management cluster from being changed.
	Fence fence.Fence
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter
	// that objects must have. If not set, all objects are reconciled.
	WatchFilterValue string
	// Now returns the time. If not set, it is time.Now.
	Now func() time.Time
}
