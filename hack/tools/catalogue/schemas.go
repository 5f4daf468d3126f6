package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes/scheme"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// types contains the types of Kubernetes.
var types = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(aggregator.AddToScheme(s))
	return s
}()

var decoder = serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()

// clusterKinds are the kinds of Kubernetes without a namespace.
var clusterKinds = []string{
	"Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "APIService",
	"PriorityClass", "StorageClass", "CSIDriver", "CSINode", "VolumeAttachment", "IngressClass", "RuntimeClass",
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration",
}

// clusterCustoms are the custom kinds without a namespace that charts create.
var clusterCustoms = []string{
	"Installation", "APIServer", "Goldmane", "Whisker", "ClusterIssuer", "GatewayClass", "NvSecurityRule", "NvClusterSecurityRule",
}

// clusterScoped returns whether an object has no namespace.
func clusterScoped(o *unstructured.Unstructured) bool {
	gvk := o.GroupVersionKind()
	if types.Recognizes(gvk) {
		return slices.Contains(clusterKinds, gvk.Kind)
	}
	return slices.Contains(clusterCustoms, gvk.Kind)
}

// custom is a version of a CRD.
type custom struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
}

// customs contains the versions of each CRD.
var customs = map[*unstructured.Unstructured]map[schema.GroupVersionKind]custom{}

// customsOf returns the versions of a CRD.
func customsOf(o *unstructured.Unstructured) map[schema.GroupVersionKind]custom {
	if out, ok := customs[o]; ok {
		return out
	}
	out := map[schema.GroupVersionKind]custom{}
	customs[o] = out
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd); err != nil {
		return out // validate reports it.
	}
	for i := range crd.Spec.Versions {
		if one, err := customOf(&crd.Spec.Versions[i]); err == nil {
			out[schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[i].Name, Kind: crd.Spec.Names.Kind}] = one
		}
	}
	return out
}

// schemas validates the objects of a site.
type schemas struct {
	version *version.Version
	// custom contains the CRDs of the site, and owner their modules.
	custom map[schema.GroupVersionKind]custom
	owner  map[schema.GroupVersionKind]string
}

func newSchemas(kubernetes string) *schemas {
	return &schemas{
		version: version.MustParseGeneric(kubernetes),
		custom:  map[schema.GroupVersionKind]custom{}, owner: map[schema.GroupVersionKind]string{},
	}
}

// learn takes the CRDs of a module.
func (s *schemas) learn(module string, objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		for gvk, one := range customsOf(o) {
			s.custom[gvk], s.owner[gvk] = one, module
		}
	}
}

func customOf(v *apiextensionsv1.CustomResourceDefinitionVersion) (custom, error) {
	if v.Schema == nil || !v.Served {
		return custom{}, fmt.Errorf("version %s is not served", v.Name)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, internal, nil); err != nil {
		return custom{}, fmt.Errorf("converting a schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return custom{}, fmt.Errorf("reading a schema: %w", err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return custom{}, fmt.Errorf("reading a schema: %w", err)
	}
	return custom{structural: structural, validator: validator}, nil
}

// apis returns the API versions that modules have added to the cluster.
func (s *schemas) apis(modules []string) []string {
	out := map[string]bool{"apiregistration.k8s.io/v1": true, "apiextensions.k8s.io/v1": true}
	for gvk, owner := range s.owner {
		if slices.Contains(modules, owner) {
			out[gvk.GroupVersion().String()] = true
			out[gvk.GroupVersion().String()+"/"+gvk.Kind] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// lifecycle is the lifetime of an API version.
type lifecycle interface {
	APILifecycleIntroduced() (major, minor int)
}

// removal is the end of an API version.
type removal interface {
	APILifecycleRemoved() (major, minor int)
}

// validate validates all objects of a module.
func (s *schemas) validate(m *rendered, report *report) {
	for _, o := range m.objects {
		for _, problem := range s.problems(m, o) {
			report.add(m.module, "%s %s: %s", o.GetKind(), o.GetName(), problem)
		}
	}
}

func (s *schemas) problems(m *rendered, o *unstructured.Unstructured) []string {
	gvk := o.GroupVersionKind()
	if types.Recognizes(gvk) {
		return s.builtIn(o)
	}
	one, ok := s.custom[gvk]
	if !ok {
		return []string{"no module installs a CRD for " + gvk.GroupVersion().String() + " " + gvk.Kind}
	}
	var out []string
	if owner := s.owner[gvk]; owner != m.module && !slices.Contains(m.needs, owner) {
		out = append(out, fmt.Sprintf("the module does not depend on %s, which installs the CRD", owner))
	}
	return append(out, one.problems(o)...)
}

// problems validates a custom resource, once.
func (c custom) problems(o *unstructured.Unstructured) []string {
	key := fmt.Sprintf("%p %p", o, c.structural)
	if out, ok := decoded[key]; ok {
		return out
	}
	var out []string
	content := o.DeepCopy().Object
	defaulting.PruneNonNullableNullsWithoutDefaults(content, c.structural)
	defaulting.Default(content, c.structural)
	for _, err := range validation.ValidateCustomResource(nil, content, c.validator) {
		out = append(out, err.Error())
	}
	for _, path := range pruning.PruneWithOptions(content, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		out = append(out, "unknown field "+path)
	}
	decoded[key] = out
	return out
}

// decoded contains the result for each object's type and content.
var decoded = map[string][]string{}

// builtIn decodes an object of Kubernetes strictly, and checks that the version
// of its API exists.
func (s *schemas) builtIn(o *unstructured.Unstructured) []string {
	key := fmt.Sprintf("%p %s", o, s.version)
	if out, ok := decoded[key]; ok {
		return out
	}
	decoded[key] = nil
	data, err := o.MarshalJSON()
	if err != nil {
		return []string{err.Error()}
	}
	typed, _, err := decoder.Decode(data, nil, nil)
	if err != nil {
		decoded[key] = []string{strings.Join(strings.Fields(err.Error()), " ")}
		return decoded[key]
	}
	if l, ok := typed.(lifecycle); ok {
		if major, minor := l.APILifecycleIntroduced(); s.version.LessThan(version.MustParseGeneric(fmt.Sprintf("%d.%d", major, minor))) {
			decoded[key] = append(decoded[key], fmt.Sprintf("%s exists from Kubernetes %d.%d on, not in %s", o.GetAPIVersion(), major, minor, s.version))
		}
	}
	if l, ok := typed.(removal); ok {
		if major, minor := l.APILifecycleRemoved(); s.version.AtLeast(version.MustParseGeneric(fmt.Sprintf("%d.%d", major, minor))) {
			decoded[key] = append(decoded[key], fmt.Sprintf("%s does not exist from Kubernetes %d.%d on", o.GetAPIVersion(), major, minor))
		}
	}
	return decoded[key]
}
