package v1beta2

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Finalizer keeps a NovaModuleSet until its modules are gone or given up.
const Finalizer = "modules.addons.cluster.x-k8s.io/nova"

// ClusterConditionPrefix begins the type of the condition that a set keeps on
// each Cluster it selects; the set's name follows, after its namespace and a
// dot when that is not the Cluster's. It is true while all
// modules of the set are ready on that Cluster, and can be named in
// Cluster.spec.availabilityGates.
const ClusterConditionPrefix = "modules.addons.cluster.x-k8s.io/"

// ClusterCondition is the type of the condition of the set name on a Cluster.
func ClusterCondition(name string) string { return ClusterConditionPrefix + name }

// Labels of what a set writes.
const (
	// SetLabel names the NovaModuleSet that an object was written for.
	SetLabel = "addons.cluster.x-k8s.io/nova-module-set"
	// ModuleLabel names the module.
	ModuleLabel = "addons.cluster.x-k8s.io/nova-module"
	// ClusterLabel names the Cluster that an object was written for.
	ClusterLabel = "addons.cluster.x-k8s.io/nova-module-cluster"
	// WaveLabel is the label of Clusters that says in which wave they take an
	// upgrade, unless spec.rollout names another.
	WaveLabel = "addons.cluster.x-k8s.io/wave"
)

// Annotations of what a set writes and reads.
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
	// NeedsAnnotation lists the modules, separated by commas, that an object was
	// written to depend on, so that it goes before them.
	NeedsAnnotation = "addons.cluster.x-k8s.io/nova-module-needs"
	// UnreachableAnnotation marks an object that is suspended because the API
	// server of its Cluster has been unreachable for long.
	UnreachableAnnotation = "addons.cluster.x-k8s.io/nova-module-unreachable"
	// KeepAnnotation stands on an object whose module is kept when it goes.
	KeepAnnotation = "addons.cluster.x-k8s.io/nova-module-keep"
	// AllowFromAnnotation stands on a Namespace and lists the namespaces,
	// separated by commas, whose sets may select its Clusters; * stands for
	// all.
	AllowFromAnnotation = "addons.cluster.x-k8s.io/allow-module-sets-from"
)

// Conditions of a NovaModuleSet.
const (
	// ReadyCondition is true while every selected Cluster has every module at
	// the current revision, ready.
	ReadyCondition = clusterv1.ReadyCondition
	// RollingOutCondition is true while Clusters are on their way to the
	// current revision, with a message that says how far they are.
	RollingOutCondition = clusterv1.RollingOutCondition
	// ValidCondition is false while the set cannot be rendered, with a message
	// that says why.
	ValidCondition = "Valid"
)

// Reasons of the conditions of a NovaModuleSet and of its condition on a
// Cluster.
const (
	// ReadyReason: all modules are ready.
	ReadyReason = "ModulesReady"
	// NotReadyReason: some are not, the message says which and why.
	NotReadyReason = "ModulesNotReady"
	// NoClustersReason: no Cluster is selected.
	NoClustersReason = "NoClusters"
	// ValidReason: the set can be rendered.
	ValidReason = "Valid"
	// InvalidReason: it cannot, the message says why.
	InvalidReason = "Invalid"
	// ManagementForbiddenReason: the set has modules of the management cluster,
	// and its namespace is not one that the administrator allows them for.
	// Nothing of the set is written.
	ManagementForbiddenReason = "ManagementForbidden"
	// NameTakenReason: the name of a module's object, or its Helm release,
	// belongs to another owner. The controller does not change it.
	NameTakenReason = "NameTaken"
	// WaitingForControlPlaneReason: the tenant has no API server yet.
	WaitingForControlPlaneReason = "WaitingForControlPlane"
	// ClusterUnreachableReason: the tenant's API server does not answer.
	ClusterUnreachableReason = "ClusterUnreachable"
	// FluxMissingReason: Flux, which delivers modules, is not installed in the
	// management cluster.
	FluxMissingReason = "FluxMissing"
	// WaitingForWaveReason: the Cluster stays at an earlier revision until its
	// wave comes.
	WaitingForWaveReason = "WaitingForWave"
	// ClusterPausedReason: somebody paused the Cluster before it got anything.
	ClusterPausedReason = "ClusterPaused"
	// SuspendedReason: the set is suspended.
	SuspendedReason = "Suspended"
	// DeletingReason: modules are being removed.
	DeletingReason = clusterv1.DeletingReason
	// RollingOutReason: Clusters are on their way.
	RollingOutReason = clusterv1.RollingOutReason
	// NotRollingOutReason: none is.
	NotRollingOutReason = clusterv1.NotRollingOutReason
	// RolloutPausedReason: somebody paused the rollout.
	RolloutPausedReason = "Paused"
	// BudgetExceededReason: too many Clusters failed, so no more are begun.
	BudgetExceededReason = "FailureBudgetExceeded"
)
