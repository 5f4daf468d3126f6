package v1beta2

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Finalizer keeps a NovaModuleSet until its modules are removed or the removal timed
// out.
const Finalizer = "modules.addons.cluster.x-k8s.io/nova"

// ClusterConditionPrefix is the prefix of the type of the condition that a set
// maintains on each Cluster that it selects. The name of the set follows, after its
// namespace and a dot if that is not the namespace of the Cluster. The condition is true
// while all modules of the set are ready on the Cluster, and can be used in
// Cluster.spec.availabilityGates.
const ClusterConditionPrefix = "modules.addons.cluster.x-k8s.io/"

// ClusterCondition returns the type of the condition of a set on a Cluster.
func ClusterCondition(name string) string { return ClusterConditionPrefix + name }

// Labels of objects that a set writes.
const (
	// SetLabel holds the name of the NovaModuleSet of an object.
	SetLabel = "addons.cluster.x-k8s.io/nova-module-set"
	// ModuleLabel holds the name of the module.
	ModuleLabel = "addons.cluster.x-k8s.io/nova-module"
	// ClusterLabel holds the name of the Cluster of an object.
	ClusterLabel = "addons.cluster.x-k8s.io/nova-module-cluster"
	// WaveLabel is the label of Clusters with the wave of a rollout, unless
	// spec.rollout.waveLabel is set.
	WaveLabel = "addons.cluster.x-k8s.io/wave"
)

// Annotations that a set writes and reads.
const (
	// RevisionAnnotation holds the revision of the set that an object was
	// written from.
	RevisionAnnotation = "addons.cluster.x-k8s.io/nova-module-revision"
	// OriginAnnotation holds the namespace of the set that an object was
	// written for.
	OriginAnnotation = "addons.cluster.x-k8s.io/nova-module-set-namespace"
	// SinceAnnotation holds the time at which an object was first written from
	// its revision, in RFC 3339.
	SinceAnnotation = "addons.cluster.x-k8s.io/nova-module-since"
	// NeedsAnnotation lists the modules, separated by commas, that an object depends on,
	// so that it is removed before them.
	NeedsAnnotation = "addons.cluster.x-k8s.io/nova-module-needs"
	// UnreachableAnnotation marks an object that is suspended because the API
	// server of its Cluster has been unreachable for long.
	UnreachableAnnotation = "addons.cluster.x-k8s.io/nova-module-unreachable"
	// KeepAnnotation is set on an object whose module is kept when it is removed.
	KeepAnnotation = "addons.cluster.x-k8s.io/nova-module-keep"
	// AllowFromAnnotation is set on a Namespace and lists the namespaces, separated by
	// commas, whose sets may select its Clusters. * stands for all.
	AllowFromAnnotation = "addons.cluster.x-k8s.io/allow-module-sets-from"
)

// Conditions of a NovaModuleSet.
const (
	// ReadyCondition is true while every selected Cluster has every module at
	// the current revision, ready.
	ReadyCondition = clusterv1.ReadyCondition
	// RollingOutCondition is true while Clusters change to the current revision. Its
	// message holds the progress.
	RollingOutCondition = clusterv1.RollingOutCondition
	// ValidCondition is false while the set cannot be rendered.
	ValidCondition = "Valid"
)

// Reasons of the conditions of a NovaModuleSet and of its condition on a
// Cluster.
const (
	// ReadyReason: all modules are ready.
	ReadyReason = "ModulesReady"
	// NotReadyReason: the modules in the message are not ready.
	NotReadyReason = "ModulesNotReady"
	// NoClustersReason: no Cluster is selected.
	NoClustersReason = "NoClusters"
	// ValidReason: the set can be rendered.
	ValidReason = "Valid"
	// InvalidReason: the set cannot be rendered.
	InvalidReason = "Invalid"
	// ManagementForbiddenReason: the set has modules of the management cluster,
	// and the administrator does not allow them for its namespace. Nothing of the set is
	// written.
	ManagementForbiddenReason = "ManagementForbidden"
	// NameConflictReason: the name of a module's object, or its Helm release,
	// belongs to another owner. The controller does not change it.
	NameConflictReason = "NameConflict"
	// WaitingForControlPlaneReason: the workload cluster has no API server yet.
	WaitingForControlPlaneReason = "WaitingForControlPlane"
	// ClusterUnreachableReason: the API server of the workload cluster does not respond.
	ClusterUnreachableReason = "ClusterUnreachable"
	// FluxNotInstalledReason: Flux, which delivers modules, is not installed in the
	// management cluster.
	FluxNotInstalledReason = "FluxNotInstalled"
	// WaitingForWaveReason: the Cluster stays at an earlier revision until its wave
	// starts.
	WaitingForWaveReason = "WaitingForWave"
	// ClusterPausedReason: the Cluster was paused before it got its modules.
	ClusterPausedReason = "ClusterPaused"
	// SuspendedReason: the set is suspended.
	SuspendedReason = "Suspended"
	// DeletingReason: modules are being removed.
	DeletingReason = clusterv1.DeletingReason
	// RollingOutReason: Clusters change to the current revision.
	RollingOutReason = clusterv1.RollingOutReason
	// NotRollingOutReason: no Cluster changes.
	NotRollingOutReason = clusterv1.NotRollingOutReason
	// RolloutSuspendedReason: the rollout is suspended.
	RolloutSuspendedReason = "RolloutSuspended"
	// BudgetExceededReason: too many Clusters failed, so that no more are started.
	BudgetExceededReason = "FailureBudgetExceeded"
)
