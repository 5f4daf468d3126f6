package v1beta2

import "time"

// Defaults of a NovaModuleSet.
const (
	// DefaultInterval is how often Flux compares, and looks at sources.
	DefaultInterval = 10 * time.Minute
	// DefaultModuleTimeout bounds each attempt at a module.
	DefaultModuleTimeout = 5 * time.Minute
	// DefaultRolloutTimeout is how long a Cluster may take for a change.
	DefaultRolloutTimeout = 30 * time.Minute
	// DefaultDeletionTimeout bounds removal.
	DefaultDeletionTimeout = 5 * time.Minute
)

func seconds(n int32, otherwise time.Duration) time.Duration {
	if n == 0 {
		return otherwise
	}
	return time.Duration(n) * time.Second
}

// Interval is how often Flux compares.
func (s *NovaModuleSetSpec) Interval() time.Duration {
	return seconds(s.IntervalSeconds, DefaultInterval)
}

// Interval is how often the source is looked at.
func (a *Access) Interval() time.Duration { return seconds(a.IntervalSeconds, DefaultInterval) }

// Timeout bounds each attempt.
func (m *Module) Timeout() time.Duration { return seconds(m.TimeoutSeconds, DefaultModuleTimeout) }

// InTenant reports whether the module runs on the tenant.
func (m *Module) InTenant() bool { return m.Location != LocationManagement }

// DefaultServiceAccount is the service account that Flux acts as for modules of
// the management cluster, in the namespace of their Cluster.
const DefaultServiceAccount = "nova-modules"

// ServiceAccount is the service account that Flux acts as. It is empty for the
// user of the tenant's kubeconfig.
func (m *Module) ServiceAccount() string {
	if m.ServiceAccountName == "" && !m.InTenant() {
		return DefaultServiceAccount
	}
	return m.ServiceAccountName
}

// Remains reports whether the module's objects stay when it goes.
func (m *Module) Remains() bool { return m.InTenant() && m.Deletion == DeletionKeep }

// Wave is the label of Clusters that names their wave.
func (r *Rollout) Wave() string {
	if r.WaveLabel == "" {
		return WaveLabel
	}
	return r.WaveLabel
}

// Timeout is how long a Cluster may take.
func (r *Rollout) Timeout() time.Duration { return seconds(r.TimeoutSeconds, DefaultRolloutTimeout) }

// Timeout bounds removal.
func (d *Deletion) Timeout() time.Duration { return seconds(d.TimeoutSeconds, DefaultDeletionTimeout) }
