package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NovaModuleSetSpec selects Clusters and the modules that are installed in them.
// +kubebuilder:validation:XValidation:rule="!has(self.modules) || self.modules.all(m, !has(m.source) || self.sources.exists(s, s.name == m.source))",message="each module's source must be one of spec.sources"
// +kubebuilder:validation:XValidation:rule="!has(self.modules) || self.modules.all(m, !has(m.location) || m.location != 'Management' || !self.sources.exists(s, has(s.ref) && s.name == (has(m.source) ? m.source : self.sources[0].name)))",message="a module of the management cluster needs a source that the set writes itself: git, oci or helm, and no ref"
// +kubebuilder:validation:XValidation:rule="has(self.release) || !self.sources.exists(s, has(s.git) || has(s.oci))",message="release is required with git and oci sources: set a tag, commit or digest"
// +kubebuilder:validation:XValidation:rule="!has(self.release) || !has(self.release.digest) || !self.sources.exists(s, has(s.git))",message="release.digest is for oci sources, and one of the sources is git: it would follow a branch"
// +kubebuilder:validation:XValidation:rule="!has(self.release) || !(has(self.release.branch) || has(self.release.commit)) || !self.sources.exists(s, has(s.oci))",message="release.branch and release.commit are for git sources, and one of the sources is oci: it would follow the tag latest"
// +kubebuilder:validation:XValidation:rule="!has(self.release) || self.sources.exists(s, has(s.git) || has(s.oci))",message="release needs a source of the kind git or oci"
type NovaModuleSetSpec struct {
	// clusterSelector selects Clusters by their labels. An empty selector selects all.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="the operator of an expression must be In or NotIn, with values, or Exists or DoesNotExist, without"
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// namespaces selects further namespaces with Clusters. Each must allow the set by the
	// annotation addons.cluster.x-k8s.io/allow-module-sets-from. If not set, Clusters are
	// selected in the namespace of the set only.
	// +optional
	Namespaces NamespaceSelector `json:"namespaces,omitempty,omitzero"`

	// sources are the sources of modules.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Sources []Source `json:"sources,omitempty"`

	// release is the revision of all git and oci sources of the set. Changing it is an
	// upgrade. If not set, the set must not have such sources.
	// +optional
	Release Release `json:"release,omitempty,omitzero"`

	// modules are the modules. If not set, all modules are removed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Modules []Module `json:"modules,omitempty"`

	// dependsOn are sets of the namespace of this set whose condition on a Cluster must be
	// true before the first module of this set is written there. Later, a Cluster keeps and
	// changes its modules also while those sets are not ready. Modules are removed from a
	// Cluster before those of the sets in dependsOn. If not set, the set waits for no other.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=40
	DependsOn []string `json:"dependsOn,omitempty"`

	// rollout configures the order in which Clusters change. If not set, all Clusters
	// change at once.
	// +optional
	Rollout Rollout `json:"rollout,omitempty,omitzero"`

	// removal configures the removal of modules. If not set, the defaults apply.
	// +optional
	Removal Removal `json:"removal,omitempty,omitzero"`

	// holdUpgrades blocks the upgrade of a Cluster with a topology to a Kubernetes version
	// that one of its modules does not support. Defaults to false.
	// +optional
	HoldUpgrades *bool `json:"holdUpgrades,omitempty"`

	// intervalSeconds is the interval of drift detection. Defaults to 600.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`

	// shard is the value of the label sharding.fluxcd.io/key on all Flux objects of the
	// set. If not set, they do not have the label.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Shard string `json:"shard,omitempty"`

	// suspend stops changes to all modules of the set. Defaults to false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// NamespaceSelector selects namespaces by name and by label.
// +kubebuilder:validation:MinProperties=1
type NamespaceSelector struct {
	// list contains the names of namespaces. If not set, none are selected by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	List []string `json:"list,omitempty"`

	// selector selects namespaces by their labels. An empty selector selects all. If not
	// set, none are selected by label.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="the operator of an expression must be In or NotIn, with values, or Exists or DoesNotExist, without"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Rollout configures the order in which Clusters change: one wave after another, a
// number of Clusters at a time, until too many have failed.
// +kubebuilder:validation:MinProperties=1
type Rollout struct {
	// waveLabel is the label of Clusters with their wave. Waves are ordered by value,
	// numbers before words. Clusters without the label are last. Defaults to
	// addons.cluster.x-k8s.io/wave.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	WaveLabel string `json:"waveLabel,omitempty"`

	// maxConcurrent is the number or percentage of Clusters of a wave that change at the
	// same time. If not set, all do.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^[1-9][0-9]?%$|^100%$')",message="maxConcurrent must be a number from 1 or a percentage from 1% to 100%"
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// failureBudget is the number or percentage of all Clusters that may fail before no
	// more are started. A Cluster fails if its modules are not ready timeoutSeconds after
	// its change started, or if the change cannot be rendered for it. Defaults to 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9][0-9]?%$|^100%$')",message="failureBudget must be a number from 0 or a percentage from 0% to 100%"
	FailureBudget *intstr.IntOrString `json:"failureBudget,omitempty"`

	// timeoutSeconds is the timeout of the change on a Cluster. Defaults to 1800.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// suspend starts the change on no more Clusters. Defaults to false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// Removal configures the removal of modules.
// +kubebuilder:validation:MinProperties=1
type Removal struct {
	// onUnselect is the action for the modules of a Cluster that the set no longer
	// selects, and of all Clusters when the set is deleted: Delete or Keep. Modules with
	// onRemoval Keep are always kept, and modules of the management cluster are always
	// deleted. Defaults to Delete.
	// +optional
	OnUnselect RemovalPolicy `json:"onUnselect,omitempty"`

	// timeoutSeconds is the timeout of the removal. After it, remaining objects are
	// abandoned. Defaults to 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// NovaModuleSetStatus is the observed state of a set.
type NovaModuleSetStatus struct {
	// conditions are Ready, RollingOut and Valid. They are not set before the first
	// reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that was last reconciled.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is the current revision of the spec.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision,omitempty"`

	// clusters is the number of selected Clusters.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Clusters *int32 `json:"clusters,omitempty"`

	// readyClusters is the number of Clusters with all modules ready.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyClusters *int32 `json:"readyClusters,omitempty"`

	// updatedClusters is the number of Clusters at the current revision.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedClusters *int32 `json:"updatedClusters,omitempty"`

	// failedClusters is the number of Clusters that failed to change to the current
	// revision.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FailedClusters *int32 `json:"failedClusters,omitempty"`

	// wave is the wave in progress. It is not set if there is none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Wave string `json:"wave,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=novamodulesets,scope=Namespaced,categories=cluster-api,shortName=novams
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1beta2"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether every module is ready on every Cluster"
// +kubebuilder:printcolumn:name="Clusters",type="integer",JSONPath=".status.clusters",description="Selected Clusters"
// +kubebuilder:printcolumn:name="ReadyClusters",type="integer",JSONPath=".status.readyClusters",description="Clusters with all modules ready"
// +kubebuilder:printcolumn:name="Updated",type="integer",JSONPath=".status.updatedClusters",description="Clusters at the current revision"
// +kubebuilder:printcolumn:name="Failed",type="integer",JSONPath=".status.failedClusters",description="Clusters that failed to change to the current revision",priority=10
// +kubebuilder:printcolumn:name="Wave",type="string",JSONPath=".status.wave",description="Wave in progress",priority=10
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=".status.revision",description="Current revision",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="Message of the condition Ready"

// NovaModuleSet installs modules in workload clusters.
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !(self.metadata.name in self.spec.dependsOn)",message="a set cannot depend on itself: remove its name from spec.dependsOn"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="metadata.name becomes part of names of Flux objects and can have at most 40 characters"
type NovaModuleSet struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state. A change of sources, release, modules, intervalSeconds or
	// shard is a new revision, which spec.rollout brings to the Clusters. A change of
	// another field applies to all Clusters at once.
	// +required
	Spec NovaModuleSetSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. It is not set before the first reconcile.
	// +optional
	Status NovaModuleSetStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (s *NovaModuleSet) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the conditions.
func (s *NovaModuleSet) SetConditions(conditions []metav1.Condition) {
	s.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// NovaModuleSetList is a list of NovaModuleSets.
type NovaModuleSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NovaModuleSet `json:"items"`
}
