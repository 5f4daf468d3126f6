package v1beta2

import "time"

// Defaults of a NovaModuleSet.
const (
	// DefaultInterval is the interval of drift detection and of source checks.
	DefaultInterval = 10 * time.Minute
	// DefaultModuleTimeout is the timeout of an attempt to apply a module.
	DefaultModuleTimeout = 5 * time.Minute
	// DefaultRolloutTimeout is the timeout of a change on a Cluster.
	DefaultRolloutTimeout = 30 * time.Minute
	// DefaultRemovalTimeout is the timeout of the removal of modules.
	DefaultRemovalTimeout = 5 * time.Minute
)

func seconds(n int32, otherwise time.Duration) time.Duration {
	if n == 0 {
		return otherwise
	}
	return time.Duration(n) * time.Second
}

// Interval returns the interval of drift detection.
func (s *NovaModuleSetSpec) Interval() time.Duration {
	return seconds(s.IntervalSeconds, DefaultInterval)
}

// Interval returns the interval of source checks.
func (a *Access) Interval() time.Duration { return seconds(a.IntervalSeconds, DefaultInterval) }

// Timeout returns the timeout of an attempt.
func (m *Module) Timeout() time.Duration { return seconds(m.TimeoutSeconds, DefaultModuleTimeout) }

// InWorkloadCluster reports whether the module runs in the workload cluster.
func (m *Module) InWorkloadCluster() bool { return m.Location != LocationManagement }

// DefaultServiceAccount is the service account that Flux uses for modules of
// the management cluster, in the namespace of their Cluster.
const DefaultServiceAccount = "nova-modules"

// ServiceAccount returns the service account that Flux uses. It is empty for the user of
// the kubeconfig of the workload cluster.
func (m *Module) ServiceAccount() string {
	if m.ServiceAccountName == "" && !m.InWorkloadCluster() {
		return DefaultServiceAccount
	}
	return m.ServiceAccountName
}

// Remains reports whether the objects of the module are kept when it is removed.
func (m *Module) Remains() bool { return m.InWorkloadCluster() && m.OnRemoval == RemovalKeep }

// Wave returns the label of Clusters with their wave.
func (r *Rollout) Wave() string {
	if r.WaveLabel == "" {
		return WaveLabel
	}
	return r.WaveLabel
}

// Timeout returns the timeout of a change on a Cluster.
func (r *Rollout) Timeout() time.Duration { return seconds(r.TimeoutSeconds, DefaultRolloutTimeout) }

// Timeout returns the timeout of the removal of modules.
func (r *Removal) Timeout() time.Duration { return seconds(r.TimeoutSeconds, DefaultRemovalTimeout) }
