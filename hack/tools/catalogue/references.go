package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// index contains the objects of a site by kind, namespace and name.
type index struct {
	facts   *facts
	objects map[string]*unstructured.Unstructured
	owner   map[string]string
	pods    []podTemplate
	report  *report
	// defaultClass means that there is a default StorageClass.
	defaultClass bool
}

// podTemplate is a pod of a workload.
type podTemplate struct {
	module, namespace, name string
	labels                  map[string]string
	spec                    *corev1.PodSpec
	claims                  []corev1.PersistentVolumeClaim
}

func key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// checkReferences reports references between objects that lead nowhere.
func checkReferences(modules []rendered, facts *facts, report *report) {
	x := &index{facts: facts, objects: map[string]*unstructured.Unstructured{}, owner: map[string]string{}, report: report}
	for _, m := range modules {
		if !m.inManagement {
			x.add(m)
		}
	}
	for _, m := range modules {
		if m.inManagement {
			continue // Their Secrets are the administrator's.
		}
		for _, o := range m.objects {
			x.object(m.module, o)
		}
	}
	for _, p := range x.pods {
		x.pod(p)
	}
}

// add takes the objects of a module. Two modules must not write the same object.
func (x *index) add(m rendered) {
	for _, o := range m.objects {
		k := key(o.GetKind(), o.GetNamespace(), o.GetName())
		if other := x.owner[k]; other != "" && other != m.module && o.GetKind() != "Namespace" && !withoutOwner[o] {
			x.report.add(m.module, "%s %s is also in module %s", o.GetKind(), o.GetName(), other)
		}
		x.objects[k], x.owner[k] = o, m.module
		if o.GetKind() == "StorageClass" && o.GetAnnotations()["storageclass.kubernetes.io/is-default-class"] == "true" {
			x.defaultClass = true
		}
		// cert-manager writes the Secret of a Certificate.
		if name, _, _ := unstructured.NestedString(o.Object, "spec", "secretName"); o.GetKind() == "Certificate" && name != "" {
			x.objects[key("Secret", o.GetNamespace(), name)] = &unstructured.Unstructured{}
		}
		if p, ok := podOf(m.module, o); ok {
			x.pods = append(x.pods, p)
		}
	}
}

var templates = map[*unstructured.Unstructured]*podTemplate{}

// podOf returns the pod template of a workload.
func podOf(module string, o *unstructured.Unstructured) (podTemplate, bool) {
	if p, ok := templates[o]; ok {
		if p == nil {
			return podTemplate{}, false
		}
		return *p, true
	}
	templates[o] = nil
	path := []string{"spec", "template"}
	switch o.GetKind() {
	case "Deployment", "DaemonSet", "StatefulSet", "Job", "ReplicaSet":
	case "CronJob":
		path = []string{"spec", "jobTemplate", "spec", "template"}
	default:
		return podTemplate{}, false
	}
	content, _, _ := unstructured.NestedMap(o.Object, path...)
	template := &corev1.PodTemplateSpec{}
	if content == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(content, template) != nil {
		return podTemplate{}, false
	}
	out := &podTemplate{module: module, namespace: o.GetNamespace(), name: o.GetKind() + " " + o.GetName(), labels: template.Labels, spec: &template.Spec}
	claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, claim := range claims {
		c := corev1.PersistentVolumeClaim{}
		if m, ok := claim.(map[string]any); ok && runtime.DefaultUnstructuredConverter.FromUnstructured(m, &c) == nil {
			out.claims = append(out.claims, c)
		}
	}
	templates[o] = out
	return *out, true
}

// needs reports an object that does not exist.
func (x *index) needs(module, from, kind, namespace, name string) {
	if name == "" || x.objects[key(kind, namespace, name)] != nil || x.facts.madeAtRunTime(module, kind, name) {
		return
	}
	x.report.add(module, "%s refers to %s %s, which does not exist", from, kind, name)
}

// pod checks the references of a pod.
func (x *index) pod(p podTemplate) {
	for _, c := range slices.Concat(p.spec.InitContainers, p.spec.Containers) {
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if r := e.ValueFrom.SecretKeyRef; r != nil && !(r.Optional != nil && *r.Optional) {
				x.needs(p.module, p.name, "Secret", p.namespace, r.Name)
			}
			if r := e.ValueFrom.ConfigMapKeyRef; r != nil && !(r.Optional != nil && *r.Optional) {
				x.needs(p.module, p.name, "ConfigMap", p.namespace, r.Name)
			}
		}
		for _, e := range c.EnvFrom {
			if r := e.SecretRef; r != nil && !(r.Optional != nil && *r.Optional) {
				x.needs(p.module, p.name, "Secret", p.namespace, r.Name)
			}
			if r := e.ConfigMapRef; r != nil && !(r.Optional != nil && *r.Optional) {
				x.needs(p.module, p.name, "ConfigMap", p.namespace, r.Name)
			}
		}
	}
	for _, v := range p.spec.Volumes {
		x.volume(p, v)
	}
	if name := p.spec.ServiceAccountName; name != "" && name != "default" {
		x.needs(p.module, p.name, "ServiceAccount", p.namespace, name)
	}
	if name := p.spec.PriorityClassName; name != "" && !strings.HasPrefix(name, "system-") {
		x.needs(p.module, p.name, "PriorityClass", "", name)
	}
	for _, claim := range p.claims {
		x.claim(p.module, p.name, claim.Spec)
	}
}

func (x *index) volume(p podTemplate, v corev1.Volume) {
	if s := v.Secret; s != nil && !(s.Optional != nil && *s.Optional) {
		x.needs(p.module, p.name, "Secret", p.namespace, s.SecretName)
	}
	if c := v.ConfigMap; c != nil && !(c.Optional != nil && *c.Optional) {
		x.needs(p.module, p.name, "ConfigMap", p.namespace, c.Name)
	}
	if v.PersistentVolumeClaim != nil {
		x.needs(p.module, p.name, "PersistentVolumeClaim", p.namespace, v.PersistentVolumeClaim.ClaimName)
	}
	if v.Projected == nil {
		return
	}
	for _, s := range v.Projected.Sources {
		if s.Secret != nil && !(s.Secret.Optional != nil && *s.Secret.Optional) {
			x.needs(p.module, p.name, "Secret", p.namespace, s.Secret.Name)
		}
		if s.ConfigMap != nil && !(s.ConfigMap.Optional != nil && *s.ConfigMap.Optional) {
			x.needs(p.module, p.name, "ConfigMap", p.namespace, s.ConfigMap.Name)
		}
	}
}

// claim reports a claim for a class that does not exist.
func (x *index) claim(module, from string, claim corev1.PersistentVolumeClaimSpec) {
	if claim.StorageClassName == nil {
		if !x.defaultClass {
			x.report.add(module, "%s claims storage of the default StorageClass, which does not exist on every site", from)
		}
		return
	}
	x.needs(module, from, "StorageClass", "", *claim.StorageClassName)
}

// object checks the references of an object other than a pod.
func (x *index) object(module string, o *unstructured.Unstructured) {
	from := o.GetKind() + " " + o.GetName()
	switch o.GetKind() {
	case "Service":
		x.service(module, o)
	case "Ingress":
		x.ingress(module, o)
	case "PersistentVolumeClaim":
		claim := &corev1.PersistentVolumeClaim{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, claim) == nil {
			x.claim(module, from, claim.Spec)
		}
	case "RoleBinding", "ClusterRoleBinding":
		x.binding(module, o)
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, hook := range hooks {
			h, _ := hook.(map[string]any)
			x.serviceReference(module, from, h, "clientConfig", "service")
		}
	case "APIService":
		x.serviceReference(module, from, o.Object, "spec", "service")
	}
}

func (x *index) serviceReference(module, from string, o map[string]any, path ...string) {
	service, found, _ := unstructured.NestedMap(o, path...)
	if !found {
		return
	}
	namespace, _ := service["namespace"].(string)
	name, _ := service["name"].(string)
	x.needs(module, from, "Service", namespace, name)
}

// binding checks the role and the service accounts of a binding.
func (x *index) binding(module string, o *unstructured.Unstructured) {
	from := o.GetKind() + " " + o.GetName()
	kind, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
	namespace := o.GetNamespace()
	if kind == "ClusterRole" {
		namespace = ""
	}
	if !slices.Contains([]string{"cluster-admin", "admin", "edit", "view", "extension-apiserver-authentication-reader"}, name) && !strings.HasPrefix(name, "system:") {
		x.needs(module, from, kind, namespace, name)
	}
	// One of the accounts is enough: a chart may name those of parts that are off.
	subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	for i, s := range subjects {
		subject, _ := s.(map[string]any)
		of, _ := subject["namespace"].(string)
		account, _ := subject["name"].(string)
		if of == "" {
			of = o.GetNamespace() // As the API server reads it.
		}
		if subject["kind"] != "ServiceAccount" || account == "default" || x.objects[key("ServiceAccount", of, account)] != nil {
			return
		}
		if i == len(subjects)-1 {
			x.needs(module, from, "ServiceAccount", of, account)
		}
	}
}

// service checks that a Service selects pods that have its ports.
func (x *index) service(module string, o *unstructured.Unstructured) {
	s := &corev1.Service{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, s) != nil || len(s.Spec.Selector) == 0 {
		return
	}
	from, selector := "Service "+s.Name, labels.SelectorFromSet(s.Spec.Selector)
	var pods []podTemplate
	for _, p := range x.pods {
		if p.namespace == s.Namespace && selector.Matches(labels.Set(p.labels)) {
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 {
		if !x.facts.madeAtRunTime(module, "Pod", s.Name) && s.Namespace != metav1.NamespaceSystem {
			x.report.add(module, "%s selects no pod", from)
		}
		return
	}
	for _, port := range s.Spec.Ports {
		if port.TargetPort.Type == intstr.String && !slices.ContainsFunc(pods, func(p podTemplate) bool { return hasPort(p.spec, port.TargetPort.StrVal) }) {
			x.report.add(module, "%s has the target port %s, which no selected pod has", from, port.TargetPort.StrVal)
		}
	}
}

func hasPort(spec *corev1.PodSpec, name string) bool {
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name }) {
			return true
		}
	}
	return false
}

// ingress checks the class, the Services and the certificates of an Ingress.
func (x *index) ingress(module string, o *unstructured.Unstructured) {
	from := "Ingress " + o.GetName()
	class, _, _ := unstructured.NestedString(o.Object, "spec", "ingressClassName")
	if class == "" {
		x.report.add(module, "%s names no class", from)
	}
	x.needs(module, from, "IngressClass", "", class)
	if tls, _, _ := unstructured.NestedSlice(o.Object, "spec", "tls"); len(tls) == 0 {
		x.report.add(module, "%s is published without TLS", from)
	}
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	for _, rule := range rules {
		r, _ := rule.(map[string]any)
		if host, _ := r["host"].(string); host == "" || strings.HasPrefix(host, "chart-example") {
			x.report.add(module, "%s has the host %q", from, host)
		}
		paths, _, _ := unstructured.NestedSlice(r, "http", "paths")
		for _, path := range paths {
			p, _ := path.(map[string]any)
			name, _, _ := unstructured.NestedString(p, "backend", "service", "name")
			x.needs(module, from, "Service", o.GetNamespace(), name)
			x.backendPort(module, from, o.GetNamespace(), name, p)
		}
	}
}

// backendPort checks that the Service of an Ingress has its port.
func (x *index) backendPort(module, from, namespace, name string, path map[string]any) {
	object := x.objects[key("Service", namespace, name)]
	if object == nil {
		return
	}
	want, _, _ := unstructured.NestedMap(path, "backend", "service", "port")
	ports, _, _ := unstructured.NestedSlice(object.Object, "spec", "ports")
	for _, port := range ports {
		p, _ := port.(map[string]any)
		if want["name"] != nil && p["name"] == want["name"] || want["number"] != nil && fmt.Sprint(p["port"]) == fmt.Sprint(want["number"]) {
			return
		}
	}
	x.report.add(module, "%s refers to the port %v of Service %s, which has no such port", from, want, name)
}
