package v1beta2

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Module is an add-on of a workload cluster: a Helm chart, which becomes a HelmRelease,
// or a path of Kustomize, which becomes a Kustomization.
// +kubebuilder:validation:XValidation:rule="has(self.chart) != has(self.kustomize)",message="set exactly one of chart and kustomize"
// +kubebuilder:validation:XValidation:rule="!has(self.kustomize) || !has(self.drift) || !has(self.drift.policy) || self.drift.policy == 'Correct'",message="drift.policy is for charts: Flux always reverts changes of the objects of a path. Name the fields that others change in drift.ignore"
// +kubebuilder:validation:XValidation:rule="!has(self.dependsOn) || !(self.name in self.dependsOn)",message="a module cannot depend on itself"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.targetNamespace)",message="a module of the management cluster is installed in the namespace of the Cluster: do not set targetNamespace"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.chart) || !has(self.chart.valuesFrom)",message="a module of the management cluster takes no valuesFrom: users of the Cluster's namespace may write those ConfigMaps and Secrets"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.kustomize) || !has(self.kustomize.substituteFrom)",message="a module of the management cluster takes no substituteFrom: users of the Cluster's namespace may write those ConfigMaps and Secrets"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.onRemoval) || self.onRemoval != 'Keep'",message="a module of the management cluster is removed with its Cluster: do not set onRemoval"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.serviceAccountName) || self.serviceAccountName.matches('^nova-modules(-[-a-z0-9.]+)?$')",message="the service account of a module of the management cluster is nova-modules, or begins with nova-modules-"
type Module struct {
	// name is the name of the module, unique in the set, and of its Helm release.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// chart is a Helm chart. Exactly one of chart and kustomize must be set.
	// +optional
	Chart *Chart `json:"chart,omitempty"`

	// kustomize is a path of Kustomize. Exactly one of chart and kustomize must be set.
	// +optional
	Kustomize *Kustomize `json:"kustomize,omitempty"`

	// source is the name of one of spec.sources. Defaults to the first one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Source string `json:"source,omitempty"`

	// location is the cluster that the module runs in. Workload: the workload cluster.
	// Management: the namespace of the Cluster in the management cluster, which has the
	// credentials of the hypervisor. Only sets in namespaces that the flag
	// --management-modules-from of nova-addon lists may have modules in the management
	// cluster. Defaults to Workload.
	// +optional
	Location Location `json:"location,omitempty"`

	// targetNamespace is the namespace of the module in the workload cluster. It is
	// created for a chart. Defaults to default for a chart. If not set for a path, the
	// namespaces of the manifests apply.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// dependsOn are modules of the set that must be ready first. If a dependency is
	// disabled on a Cluster, the module depends there on the dependencies of that one. If not set, there are no dependencies.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=53
	DependsOn []string `json:"dependsOn,omitempty"`

	// when is a CEL expression over facts that enables the module, for instance
	// facts.nodes.infra >= 3. If not set, the module is enabled.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	When string `json:"when,omitempty"`

	// kubernetes is the range of Kubernetes versions that the module supports, for
	// instance >=1.34 <1.38. If not set, it supports all.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Kubernetes string `json:"kubernetes,omitempty"`

	// serviceAccountName is the service account that Flux uses, in the workload cluster
	// or in the namespace of the Cluster in the management cluster. There its name is
	// nova-modules or begins with nova-modules-. Defaults to nova-modules in the
	// management cluster. If not set for the workload cluster, Flux uses its kubeconfig.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// healthChecks are objects in the workload cluster that must be ready. If not set,
	// all objects of the module must be.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`

	// healthExpressions are CEL expressions that determine whether objects of a kind are
	// ready. If not set, Flux determines it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	HealthExpressions []HealthExpression `json:"healthExpressions,omitempty"`

	// timeoutSeconds is the timeout of an attempt. Defaults to 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// onFailure is the action after a failed attempt: Retry or Remediate. Defaults to
	// Retry.
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`

	// drift configures the action for objects that were changed in the workload cluster. If
	// not set, all changes are reverted.
	// +optional
	Drift Drift `json:"drift,omitempty,omitzero"`

	// onRemoval is the action for the objects of the module when it is removed from the
	// set or disabled: Delete or Keep. Defaults to Delete.
	// +optional
	OnRemoval RemovalPolicy `json:"onRemoval,omitempty"`

	// suspend stops changes to the module. Defaults to false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// Location is the cluster that a module runs in.
// +kubebuilder:validation:Enum=Workload;Management
type Location string

// Locations.
const (
	// LocationWorkload is the workload cluster.
	LocationWorkload Location = "Workload"
	// LocationManagement is the management cluster.
	LocationManagement Location = "Management"
)

// FailurePolicy is the action after a failed attempt.
// +kubebuilder:validation:Enum=Retry;Remediate
type FailurePolicy string

// Failure policies.
const (
	// FailureRetry tries again. It never uninstalls, because a cluster does not survive
	// the removal of its CNI plugin.
	FailureRetry FailurePolicy = "Retry"
	// FailureRemediate uninstalls a failed installation and rolls a failed
	// upgrade back before it tries again.
	FailureRemediate FailurePolicy = "Remediate"
)

// Drift configures the action for objects that were changed in the workload cluster.
// +kubebuilder:validation:MinProperties=1
type Drift struct {
	// policy is the action for changed objects: Correct, Warn or Ignore. A path of
	// Kustomize has Correct only. Defaults to Correct.
	// +optional
	Policy DriftPolicy `json:"policy,omitempty"`

	// ignore lists fields that others may change, such as an operator or a webhook. If not
	// set, no field is ignored.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Ignore []DriftRule `json:"ignore,omitempty"`
}

// DriftRule lists fields of objects that are ignored.
type DriftRule struct {
	// paths are the fields as JSON pointers (RFC 6901), for instance /spec/replicas. In a
	// name, ~1 stands for / and ~0 for ~.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^(/([^~/]|~[01])+)+$`
	Paths []string `json:"paths,omitempty"`

	// target selects the objects. If not set, the paths are ignored in all objects of the
	// module.
	// +optional
	Target DriftTarget `json:"target,omitempty,omitzero"`
}

// DriftTarget selects objects of a module. An object is selected if all fields that are set
// match.
// +kubebuilder:validation:MinProperties=1
type DriftTarget struct {
	// group is the API group of the objects. If not set, all groups match.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// kind is the kind of the objects. If not set, all kinds match.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind,omitempty"`

	// namespace is the namespace of the objects. If not set, all namespaces match.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the objects. If not set, all names match.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// DriftPolicy is the action for changed objects.
// +kubebuilder:validation:Enum=Correct;Warn;Ignore
type DriftPolicy string

// Drift policies.
const (
	// DriftCorrect reverts the changes.
	DriftCorrect DriftPolicy = "Correct"
	// DriftWarn reports the changes.
	DriftWarn DriftPolicy = "Warn"
	// DriftIgnore ignores the changes.
	DriftIgnore DriftPolicy = "Ignore"
)

// RemovalPolicy is the action for the objects of a removed module.
// +kubebuilder:validation:Enum=Delete;Keep
type RemovalPolicy string

// Removal policies.
const (
	// RemovalDelete deletes the objects, those of dependent modules first.
	RemovalDelete RemovalPolicy = "Delete"
	// RemovalKeep keeps the objects.
	RemovalKeep RemovalPolicy = "Keep"
)

// Chart is a Helm chart.
type Chart struct {
	// name is the name of the chart in a Helm repository, or its path in another source.
	// If not set, the artifact of the OCI source is the chart.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Name string `json:"name,omitempty"`

	// version is the version of the chart in a Helm repository, or a range of versions. If
	// not set, it is the newest.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// valuesFrom are values from ConfigMaps and Secrets in the namespace of the Cluster.
	// Later entries override earlier ones. If not set, there are none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ValuesFrom []ValuesReference `json:"valuesFrom,omitempty"`

	// values are inline values. They override valuesFrom. If not set, there are none.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Values *apiextensionsv1.JSON `json:"values,omitempty"`

	// valuesTemplate is a Go template over facts that renders values in YAML. They override
	// values. If not set, there are none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	ValuesTemplate string `json:"valuesTemplate,omitempty"`
}

// ValuesReference names values in a ConfigMap or Secret.
type ValuesReference struct {
	// kind is ConfigMap or Secret.
	// +required
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// key is the key of the values. Defaults to values.yaml.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`

	// targetPath is the path of a single value. If not set, the key holds a YAML document
	// of values.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	TargetPath string `json:"targetPath,omitempty"`

	// optional ignores a missing object. Defaults to false.
	// +optional
	Optional *bool `json:"optional,omitempty"`
}

// Kustomize is a path of Kustomize.
type Kustomize struct {
	// path is the directory in the source. Defaults to its root.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="path must not leave the source"
	Path string `json:"path,omitempty"`

	// substitute are variables of the manifests. Each value is a Go template over facts.
	// They override substituteFrom and the variables of the provider. If not set, none
	// are added.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Substitute []Variable `json:"substitute,omitempty"`

	// substituteFrom are ConfigMaps and Secrets in the namespace of the Cluster whose keys
	// are variables. If not set, there are the variables of the provider only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	SubstituteFrom []VariablesReference `json:"substituteFrom,omitempty"`

	// prune deletes objects that were removed from the source. Defaults to true.
	// +optional
	Prune *bool `json:"prune,omitempty"`

	// force recreates objects when an immutable field changes. Defaults to false.
	// +optional
	Force *bool `json:"force,omitempty"`
}

// Variable is a variable of the manifests.
type Variable struct {
	// name is the name of the variable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[_a-zA-Z][_a-zA-Z0-9]*$`
	Name string `json:"name,omitempty"`

	// value is a Go template over facts. Defaults to the empty string.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Value *string `json:"value,omitempty"`
}

// VariablesReference names variables in a ConfigMap or Secret.
type VariablesReference struct {
	// kind is ConfigMap or Secret.
	// +required
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// optional ignores a missing object. Defaults to false.
	// +optional
	Optional *bool `json:"optional,omitempty"`
}

// HealthCheck names an object in the workload cluster.
type HealthCheck struct {
	// apiVersion is the group and version of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the object. Defaults to targetNamespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// HealthExpression determines in CEL whether objects of a kind are ready.
type HealthExpression struct {
	// apiVersion is the group and version of the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the kind of the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// current is true for an object that is ready.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Current string `json:"current,omitempty"`

	// inProgress is true for an object that is not ready yet. If not set, all other
	// objects are in progress.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	InProgress string `json:"inProgress,omitempty"`

	// failed is true for an object that failed. If not set, no object fails.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Failed string `json:"failed,omitempty"`
}
