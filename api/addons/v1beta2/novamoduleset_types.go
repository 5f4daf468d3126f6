package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NovaModuleSetSpec is a set of modules and the Clusters that get them.
// +kubebuilder:validation:XValidation:rule="!has(self.modules) || self.modules.all(m, !has(m.source) || self.sources.exists(s, s.name == m.source))",message="each module's source must be one of spec.sources"
// +kubebuilder:validation:XValidation:rule="!has(self.modules) || self.modules.all(m, !has(m.location) || m.location != 'Management' || !self.sources.exists(s, has(s.ref) && s.name == (has(m.source) ? m.source : self.sources[0].name)))",message="a module of the management cluster needs a source that the set writes itself: git, oci or helm, and no ref"
// +kubebuilder:validation:XValidation:rule="has(self.release) || !self.sources.exists(s, has(s.git) || has(s.oci))",message="release is required with git and oci sources: set a tag, commit or digest"
// +kubebuilder:validation:XValidation:rule="!has(self.release) || !has(self.release.digest) || !self.sources.exists(s, has(s.git))",message="release.digest is for oci sources, and one of the sources is git: it would follow a branch"
// +kubebuilder:validation:XValidation:rule="!has(self.release) || !(has(self.release.branch) || has(self.release.commit)) || !self.sources.exists(s, has(s.oci))",message="release.branch and release.commit are for git sources, and one of the sources is oci: it would follow the tag latest"
// +kubebuilder:validation:XValidation:rule="!has(self.release) || self.sources.exists(s, has(s.git) || has(s.oci))",message="release needs a source of the kind git or oci"
type NovaModuleSetSpec struct {
	// clusterSelector selects Clusters by their labels. One without rules
	// selects all.
	// +required
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// namespaces are further namespaces to look for Clusters in. Each must
	// allow it by the annotation addons.cluster.x-k8s.io/allow-module-sets-from.
	// Empty looks only in the set's own.
	// +optional
	Namespaces NamespaceSelector `json:"namespaces,omitempty,omitzero"`

	// sources are where modules come from.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Sources []Source `json:"sources,omitempty"`

	// release is what is taken of the git and oci sources that the set
	// writes. Required with such sources.
	// +optional
	Release Release `json:"release,omitempty,omitzero"`

	// modules are the modules. Empty removes all.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Modules []Module `json:"modules,omitempty"`

	// rollout is how a change goes over the fleet. Empty changes all Clusters
	// at once.
	// +optional
	Rollout Rollout `json:"rollout,omitempty,omitzero"`

	// deletion is what happens when Clusters or the set go. Empty takes the
	// defaults of each.
	// +optional
	Deletion Deletion `json:"deletion,omitempty,omitzero"`

	// holdUpgrades keeps a Cluster with a topology from moving to a Kubernetes
	// version that one of its modules does not fit. Empty means false.
	// +optional
	HoldUpgrades *bool `json:"holdUpgrades,omitempty"`

	// intervalSeconds is how often Flux compares. Empty means 600.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`

	// shard is the value of Flux' label sharding.fluxcd.io/key on all that
	// the set writes. Empty sets none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Shard string `json:"shard,omitempty"`

	// suspend leaves everything as it is. Empty means false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// NamespaceSelector selects namespaces: those in list and those that selector
// matches.
// +kubebuilder:validation:MinProperties=1
type NamespaceSelector struct {
	// list names namespaces. Empty names none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	List []string `json:"list,omitempty"`

	// selector matches namespaces by their labels; one without rules matches
	// all. Empty matches none.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Rollout is how a change goes over the fleet: wave after wave, a number at a
// time, until too many have failed.
// +kubebuilder:validation:MinProperties=1
type Rollout struct {
	// waveLabel is the label of Clusters whose value is their wave. Waves go
	// in the order of their values, numbers before words; Clusters without
	// the label go last. Empty means addons.cluster.x-k8s.io/wave.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	WaveLabel string `json:"waveLabel,omitempty"`

	// maxConcurrent is how many Clusters of a wave change at a time, a number
	// or a percentage of the wave. Empty means all.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^[1-9][0-9]?%$|^100%$')",message="maxConcurrent must be a number from 1 or a percentage from 1% to 100%"
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// failureBudget is how many Clusters, a number or a percentage of all,
	// may fail before no more are begun. A Cluster fails when its modules are
	// not ready for timeoutSeconds after its turn came, or when the change
	// cannot be rendered for it. Empty means 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^[0-9][0-9]?%$|^100%$')",message="failureBudget must be a number from 0 or a percentage from 0% to 100%"
	FailureBudget *intstr.IntOrString `json:"failureBudget,omitempty"`

	// timeoutSeconds is how long a Cluster may take. Empty means 1800.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// paused begins no more Clusters. Empty means false.
	// +optional
	Paused *bool `json:"paused,omitempty"`
}

// Deletion is what happens when Clusters or the set go.
// +kubebuilder:validation:MinProperties=1
type Deletion struct {
	// unselected is what becomes of the modules of a Cluster that the set
	// selects no more, and of all Clusters when the set is deleted. A module
	// with the policy Keep is kept in any case, a module of the management
	// cluster in none. Empty means Remove.
	// +optional
	Unselected DeletionPolicy `json:"unselected,omitempty"`

	// timeoutSeconds bounds how long removal may take; what is left then is
	// given up, and nothing waits for it. Empty means 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// NovaModuleSetStatus is what the set has come to.
type NovaModuleSetStatus struct {
	// conditions are Ready, RollingOut and Valid. Empty until the first
	// reconcile.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that the status is about. Empty
	// until the first reconcile.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// revision is the current revision. Empty until the first reconcile.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision,omitempty"`

	// clusters is the number of selected Clusters.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Clusters *int32 `json:"clusters,omitempty"`

	// readyClusters is how many of them have all modules ready.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyClusters *int32 `json:"readyClusters,omitempty"`

	// updatedClusters is how many of them are at the current revision.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedClusters *int32 `json:"updatedClusters,omitempty"`

	// failedClusters is how many of them failed to get there.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FailedClusters *int32 `json:"failedClusters,omitempty"`

	// wave is the wave that is under way. Empty when none is.
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
// +kubebuilder:printcolumn:name="Failed",type="integer",JSONPath=".status.failedClusters",description="Clusters that failed to get there",priority=10
// +kubebuilder:printcolumn:name="Wave",type="string",JSONPath=".status.wave",description="Wave under way",priority=10
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=".status.revision",description="Current revision",priority=10
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What it waits for"

// NovaModuleSet puts modules onto tenant clusters.
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="metadata.name becomes part of names of Flux objects and can have at most 40 characters"
type NovaModuleSet struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	// +required
	Spec NovaModuleSetSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state. Empty until the first reconcile.
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
