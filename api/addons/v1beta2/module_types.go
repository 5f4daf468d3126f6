package v1beta2

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Module is one piece of software on a tenant: a Helm chart, which becomes a
// HelmRelease, or a path of Kustomize, which becomes a Kustomization.
// +kubebuilder:validation:XValidation:rule="has(self.chart) != has(self.kustomize)",message="set exactly one of chart and kustomize"
// +kubebuilder:validation:XValidation:rule="!has(self.dependsOn) || !(self.name in self.dependsOn)",message="a module cannot depend on itself"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.targetNamespace)",message="a module of the management cluster goes to the Cluster's namespace: leave targetNamespace out"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.chart) || !has(self.chart.valuesFrom)",message="a module of the management cluster takes no valuesFrom: users of the Cluster's namespace may write those ConfigMaps and Secrets"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.kustomize) || !has(self.kustomize.substituteFrom)",message="a module of the management cluster takes no substituteFrom: users of the Cluster's namespace may write those ConfigMaps and Secrets"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.deletion) || self.deletion != 'Keep'",message="a module of the management cluster is removed with its Cluster: leave deletion out"
// +kubebuilder:validation:XValidation:rule="!has(self.location) || self.location != 'Management' || !has(self.serviceAccountName) || self.serviceAccountName.matches('^nova-modules(-[-a-z0-9.]+)?$')",message="the service account of a module of the management cluster is nova-modules, or begins with nova-modules-"
type Module struct {
	// name is the module's name, unique in the set. The Helm release has it
	// too.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// chart is a Helm chart. Empty means a Kustomize path.
	// +optional
	Chart *Chart `json:"chart,omitempty"`

	// kustomize is a path of Kustomize. Empty means a Helm chart.
	// +optional
	Kustomize *Kustomize `json:"kustomize,omitempty"`

	// source is the name of the source in spec.sources. Empty means the first.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Source string `json:"source,omitempty"`

	// location is where the module runs: on the Tenant, or on the Management
	// cluster in the Cluster's namespace, where credentials of the hypervisor
	// are and the tenant cannot see them. Only sets in namespaces that the flag
	// --management-modules-from of nova-addon names may have modules in
	// Management. If not set, Tenant.
	// +optional
	Location Location `json:"location,omitempty"`

	// targetNamespace is the tenant's namespace that the module goes to; a
	// chart's is made when it is missing. Empty means the one that the
	// manifests name, and for a chart default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// dependsOn are modules of the set, of either kind, that must be ready
	// first. One that is switched off on a Cluster holds nothing up there.
	// Empty depends on none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=53
	DependsOn []string `json:"dependsOn,omitempty"`

	// when is an expression of CEL over facts that switches the module on, for
	// instance facts.nodes.infra >= 3. Empty means always.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	When string `json:"when,omitempty"`

	// kubernetes is the range of Kubernetes versions that the module fits, for
	// instance >=1.34 <1.38. Empty means all.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Kubernetes string `json:"kubernetes,omitempty"`

	// serviceAccountName is the service account that Flux acts as, on the
	// tenant or in the Cluster's namespace of the management cluster, where its
	// name is nova-modules or begins with nova-modules-. If not set, the user of
	// the tenant's kubeconfig, or nova-modules in the management cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// healthChecks are objects on the tenant that must be ready too. Empty
	// waits for all that the module makes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`

	// healthExpressions say in CEL when objects of a kind are ready. Empty
	// knows the kinds that Flux knows.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	HealthExpressions []HealthExpression `json:"healthExpressions,omitempty"`

	// timeoutSeconds bounds each attempt. Empty means 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// onFailure is what happens after a failed attempt. Empty means Retry.
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`

	// drift is what happens to objects that somebody changed on the tenant.
	// Empty means Correct.
	// +optional
	Drift DriftPolicy `json:"drift,omitempty"`

	// deletion is what becomes of the module's objects when it leaves the
	// set or is switched off. Empty means Remove.
	// +optional
	Deletion DeletionPolicy `json:"deletion,omitempty"`

	// suspend leaves the module as it is. Empty means false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// Location is where a module runs.
// +kubebuilder:validation:Enum=Tenant;Management
type Location string

// Locations.
const (
	// LocationTenant is the tenant cluster.
	LocationTenant Location = "Tenant"
	// LocationManagement is the management cluster.
	LocationManagement Location = "Management"
)

// FailurePolicy is what happens after a failed attempt.
// +kubebuilder:validation:Enum=Retry;Remediate
type FailurePolicy string

// Failure policies.
const (
	// FailureRetry tries again with what is there. It never uninstalls, which
	// a CNI would not survive.
	FailureRetry FailurePolicy = "Retry"
	// FailureRemediate uninstalls a failed installation and rolls a failed
	// upgrade back before it tries again.
	FailureRemediate FailurePolicy = "Remediate"
)

// DriftPolicy is what happens to changed objects.
// +kubebuilder:validation:Enum=Correct;Warn;Ignore
type DriftPolicy string

// Drift policies. A Kustomization always corrects.
const (
	// DriftCorrect puts them back.
	DriftCorrect DriftPolicy = "Correct"
	// DriftWarn tells of them.
	DriftWarn DriftPolicy = "Warn"
	// DriftIgnore leaves them.
	DriftIgnore DriftPolicy = "Ignore"
)

// DeletionPolicy is what becomes of a module's objects.
// +kubebuilder:validation:Enum=Remove;Keep
type DeletionPolicy string

// Deletion policies.
const (
	// DeletionRemove removes them, what depends on others first.
	DeletionRemove DeletionPolicy = "Remove"
	// DeletionKeep leaves them.
	DeletionKeep DeletionPolicy = "Keep"
)

// Chart is a Helm chart.
type Chart struct {
	// name is the chart's name in a Helm repository, or its path in another
	// source. Empty means the OCI source is the chart.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Name string `json:"name,omitempty"`

	// version is the chart's version, or a range of them; only for a Helm
	// repository. Empty means the newest.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// valuesFrom are values from ConfigMaps and Secrets in the Cluster's
	// namespace, later ones win. Empty takes none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ValuesFrom []ValuesReference `json:"valuesFrom,omitempty"`

	// values are inline; they win over valuesFrom. Empty sets none.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Values *apiextensionsv1.JSON `json:"values,omitempty"`

	// valuesTemplate is a Go template over facts that renders to YAML; it
	// wins over values. Empty sets none.
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

	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// key is where the values stand. Empty means values.yaml.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`

	// targetPath sets the one value at this path instead. Empty takes a
	// whole document.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	TargetPath string `json:"targetPath,omitempty"`

	// optional tolerates that it is missing. Empty means false.
	// +optional
	Optional *bool `json:"optional,omitempty"`
}

// Kustomize is a path of Kustomize.
type Kustomize struct {
	// path is the folder in the source. Empty means its root.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="path must not leave the source"
	Path string `json:"path,omitempty"`

	// substitute are variables that the manifests write as Flux asks. They win
	// over substituteFrom and over Nova's own, and each is a Go template over
	// facts. Empty adds none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Substitute []Variable `json:"substitute,omitempty"`

	// substituteFrom are ConfigMaps and Secrets in the Cluster's namespace
	// whose keys are variables. Empty takes Nova's own only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	SubstituteFrom []VariablesReference `json:"substituteFrom,omitempty"`

	// prune removes objects that left the source. Empty means true.
	// +optional
	Prune *bool `json:"prune,omitempty"`

	// force makes objects anew when an immutable field changes. Empty means
	// false.
	// +optional
	Force *bool `json:"force,omitempty"`
}

// Variable is a variable of the manifests.
type Variable struct {
	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[_a-zA-Z][_a-zA-Z0-9]*$`
	Name string `json:"name,omitempty"`

	// value is its value, a Go template over facts. Empty is the empty text.
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

	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// optional tolerates that it is missing. Empty means false.
	// +optional
	Optional *bool `json:"optional,omitempty"`
}

// HealthCheck names an object on the tenant.
type HealthCheck struct {
	// apiVersion is its group and version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is its kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// namespace is its namespace. Empty means targetNamespace, or none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// HealthExpression says in CEL when objects of a kind are ready.
type HealthExpression struct {
	// apiVersion is their group and version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is their kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// current is true for an object that is ready.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Current string `json:"current,omitempty"`

	// inProgress is true for one that is on its way. Empty means all others
	// are.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	InProgress string `json:"inProgress,omitempty"`

	// failed is true for one that failed. Empty means none does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Failed string `json:"failed,omitempty"`
}
