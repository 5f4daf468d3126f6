package v1beta2

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Finalizer keeps a NovaModuleSet until its modules are removed or the removal timed
// out.
const Finalizer = "modules.addons.cluster.x-k8s.io/nova"

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
	// PlaceAnnotation identifies the objects of a path: its source without the release, the
	// path, the namespace and the variables. Two modules of a Cluster with the same value
	// would apply the same objects.
	PlaceAnnotation = "addons.cluster.x-k8s.io/nova-module-place"
	// UnreachableAnnotation marks an object that is suspended because the API
	// server of its Cluster has been unreachable for long.
	UnreachableAnnotation = "addons.cluster.x-k8s.io/nova-module-unreachable"
	// KeepAnnotation is set on an object whose module is kept when it is removed.
	KeepAnnotation = "addons.cluster.x-k8s.io/nova-module-keep"
	// AllowFromAnnotation is set on a Namespace and lists the namespaces, separated by
	// commas, whose sets may select its Clusters. * stands for all.
	AllowFromAnnotation = "addons.cluster.x-k8s.io/allow-module-sets-from"
)

// NovaModuleSet's Ready condition and corresponding reasons.
const (
	// ReadyCondition is true while every selected Cluster has every module at the current
	// revision, ready. It is unknown until the state of each Cluster is known.
	ReadyCondition = clusterv1.ReadyCondition

	// NoClustersReason: no Cluster is selected. The message counts the Clusters whose
	// namespaces do not allow the set.
	//
	// Action: check the labels of the Clusters, and the annotation
	// addons.cluster.x-k8s.io/allow-module-sets-from of their namespaces.
	NoClustersReason = "NoClusters"

	// DeletingReason: the set waits until its modules are removed, at most until the
	// timeout.
	//
	// Action: wait.
	DeletingReason = clusterv1.DeletingReason
)

// NovaModuleSet's Valid condition and corresponding reasons.
const (
	// ValidCondition is false while the set cannot be rendered for any Cluster.
	ValidCondition = "Valid"

	// ValidReason: the set can be rendered.
	//
	// Action: none.
	ValidReason = "Valid"
)

// NovaModuleSet's RollingOut condition and corresponding reasons.
const (
	// RollingOutCondition is true while Clusters change to the current revision. If the
	// rollout is stopped, it stays true. Its message holds the progress. It has negative
	// polarity.
	RollingOutCondition = clusterv1.RollingOutCondition

	// RollingOutReason: Clusters change to the current revision.
	//
	// Action: wait.
	RollingOutReason = clusterv1.RollingOutReason

	// NotRollingOutReason: no Cluster changes. The message names the Clusters that get their
	// first modules after those of another set.
	//
	// Action: none.
	NotRollingOutReason = clusterv1.NotRollingOutReason

	// RolloutSuspendedReason: a user suspended the rollout.
	//
	// Action: clear spec.rollout.suspend when the rollout is to continue.
	RolloutSuspendedReason = "RolloutSuspended"

	// BudgetExceededReason: too many Clusters failed, so that no more are started.
	//
	// Action: fix the modules, which creates a new revision, or raise
	// spec.rollout.failureBudget.
	BudgetExceededReason = "FailureBudgetExceeded"
)

// State of modules: reasons of Ready, Valid and modules.addons.cluster.x-k8s.io/<set>.
const (
	// ReadyReason: all modules are ready.
	//
	// Action: none.
	ReadyReason = "ModulesReady"

	// NotReadyReason: the modules or Clusters in the message are not ready. `Waiting for x`:
	// x has to be ready first. `Waiting for Flux`: Flux has not reconciled the object yet.
	// `It supports Kubernetes …`: the module is left as it is on the Cluster. Any other text
	// is the message of Flux.
	//
	// Action: run `kubectl describe helmrelease` or `kubectl describe kustomization` with
	// the name `<cluster>-<set>-<module>`. For `Waiting for Flux`, check that its
	// controllers run, and that one of them serves the shard. For an unsupported version,
	// use a release of the module that supports it.
	NotReadyReason = "ModulesNotReady"

	// InvalidReason: the set cannot be rendered: a dependency cycle of modules or sets, a
	// missing name, an expression or template that fails on this Cluster. Valid has the same reason if this
	// does not depend on the Cluster. Or the Cluster has no modules of the set yet, and one of them does not
	// support its Kubernetes version.
	//
	// Action: fix the problem that the message names. For an unsupported version, use a
	// release of the module that supports it.
	InvalidReason = "Invalid"

	// SuspendedReason: spec.suspend of the set is set.
	//
	// Action: clear the field to continue.
	SuspendedReason = "Suspended"
)

// Cluster's modules.addons.cluster.x-k8s.io/<set> condition and corresponding reasons.
const (
	// ClusterConditionPrefix is the condition that a set maintains on each Cluster that it
	// selects. The name of the set follows the prefix in its type, after the namespace of
	// the set and a dot if that is not the namespace of the Cluster. The condition is true
	// while all modules of the set are ready on the Cluster, and can be used in
	// Cluster.spec.availabilityGates.
	ClusterConditionPrefix = "modules.addons.cluster.x-k8s.io/"

	// WaitingForControlPlaneReason: the workload cluster has no API server yet.
	//
	// Action: check the conditions of the Cluster.
	WaitingForControlPlaneReason = "WaitingForControlPlane"

	// ClusterUnreachableReason: the API server of the workload cluster does not respond, its
	// certificate is not trusted, or it rejects the credentials in Secret
	// `<cluster>-kubeconfig`; the message has the reason. Nothing is written until it responds.
	//
	// Action: check its control plane machines and the network to them, or the kubeconfig. The
	// manager's log has the details.
	ClusterUnreachableReason = "ClusterUnreachable"

	// FluxNotInstalledReason: Flux, or one of source-controller, kustomize-controller and
	// helm-controller, is not installed in the management cluster.
	//
	// Action: install the controllers that the message names. The modules are then
	// installed automatically.
	FluxNotInstalledReason = "FluxNotInstalled"

	// SourceNotFetchedReason: Flux cannot fetch the source of a module in the message, such as a chart that
	// does not exist in its registry. No module of the set is created or changed on the Cluster before all
	// sources are fetched; modules that are up to date are kept.
	//
	// Action: correct the name or version of the chart, the release or the credentials of the source, or push
	// the chart. Run `kubectl get ocirepositories,gitrepositories,helmrepositories` in the Cluster's namespace.
	SourceNotFetchedReason = "SourceNotFetched"

	// NameConflictReason: the name `<cluster>-<set>-<module>` of a module's object is
	// already used by another set or Cluster with the same combined name, or by an object
	// that no set has written. Or two sets have a chart module with the same name and
	// namespace on the Cluster, which would be one Helm release, or the same path of the same
	// source with the same namespace and variables, which would be the same objects. The
	// first owner keeps the name; its object is not changed.
	//
	// Action: rename the set or the module, or remove the other object, which the message
	// names. The name is checked again every ten seconds.
	NameConflictReason = "NameConflict"

	// ManagementForbiddenReason: the set has a module with location Management, and the
	// administrator does not allow it for the namespace of the set. Nothing of the set is
	// written.
	//
	// Action: move the set to a namespace that --management-modules-from of nova-addon
	// names, or remove the module; see docs/modules.md#modules-of-the-management-cluster.
	ManagementForbiddenReason = "ManagementForbidden"

	// WaitingForWaveReason: the rollout has not reached this Cluster yet, and its earlier
	// revision is no longer recorded. Existing modules are kept.
	//
	// Action: wait; RollingOut of the set shows the progress.
	WaitingForWaveReason = "WaitingForWave"

	// WaitingForSetReason: a set in spec.dependsOn is not ready on this Cluster, or does not
	// select it. No module of this set has been written yet.
	//
	// Action: check the condition of the other set on this Cluster. If there is none, check
	// the selector of that set and the labels of the Cluster, or remove the set from
	// spec.dependsOn.
	WaitingForSetReason = "WaitingForSet"

	// WaitingForDependentsReason: the modules of the set are to be removed from this Cluster,
	// and other sets, which depend on this set, still have modules there.
	//
	// Action: remove these sets from the Cluster too, or remove this set from their
	// spec.dependsOn.
	WaitingForDependentsReason = "WaitingForDependents"

	// FactsUnreadableReason: modules of the set are to be removed from this Cluster, and
	// the control plane, infrastructure cluster or machines of the Cluster cannot be read, which
	// decide whether another set has the modules. After removal.timeoutSeconds, each module that
	// another set lists is kept in the workload cluster, and the others are removed.
	//
	// Action: fix the problem that the message names. An event of the Cluster names the modules
	// that were kept.
	FactsUnreadableReason = "FactsUnreadable"

	// ClusterPausedReason: the Cluster was paused before it got a module of the set. A
	// Cluster that has its modules keeps its condition.
	//
	// Action: see docs/day2.md#pause.
	ClusterPausedReason = "ClusterPaused"
)

// ClusterCondition returns the type of the condition of a set on a Cluster.
func ClusterCondition(name string) string { return ClusterConditionPrefix + name }
