package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Permissions are the rules in a workload cluster for the user of a manager, or for
// a group that a manager serves. An administrator of the cluster keeps one of the
// objects as it is, for instance without subjects, by the annotation that the API
// server has for its own roles: rbac.authorization.kubernetes.io/autoupdate=false.
type Permissions struct {
	// Cluster are the rules of the ClusterRole that has the user's name.
	Cluster []rbacv1.PolicyRule
	// System are the rules of the Role in namespace kube-system that has the
	// user's name.
	System []rbacv1.PolicyRule
	// Namespace, if set, is a namespace that only the user writes to. It is
	// created. Own are the rules of the Role there that has the user's name.
	Namespace string
	Own       []rbacv1.PolicyRule
	// Bindings are written beside the user's own.
	Bindings []rbacv1.ClusterRoleBinding
}

// permission is an object with the function that fills it in.
type permission struct {
	object client.Object
	fill   func()
}

// objects returns the roles before their bindings.
func (p Permissions) objects(name string, subject rbacv1.Subject) []permission {
	everywhere, system := metav1.ObjectMeta{Name: name}, metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}
	clusterRole, role := &rbacv1.ClusterRole{ObjectMeta: everywhere}, &rbacv1.Role{ObjectMeta: system}
	binding := &rbacv1.RoleBinding{ObjectMeta: system}
	subjects := []rbacv1.Subject{subject}
	objects := []permission{
		{clusterRole, func() { clusterRole.Rules = p.Cluster }},
		{role, func() { role.Rules = p.System }},
		{binding, func() {
			binding.Subjects, binding.RoleRef = subjects, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
		}},
	}
	if p.Namespace != "" {
		meta := metav1.ObjectMeta{Name: name, Namespace: p.Namespace}
		role, binding := &rbacv1.Role{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta}
		objects = append(objects,
			permission{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}}, func() {}},
			permission{role, func() { role.Rules = p.Own }},
			permission{binding, func() {
				binding.Subjects, binding.RoleRef = subjects, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
			}})
	}
	own := rbacv1.ClusterRoleBinding{
		ObjectMeta: everywhere, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	for _, want := range append([]rbacv1.ClusterRoleBinding{own}, p.Bindings...) {
		is := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: want.Name}}
		objects = append(objects, permission{is, func() { is.Subjects, is.RoleRef = want.Subjects, want.RoleRef }})
	}
	return objects
}

// Write gives a user the permissions through c, and reports whether it changed
// any object.
func (p Permissions) Write(ctx context.Context, user string, c client.Client) (changed bool, err error) {
	return p.WriteFor(ctx, user, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}, c)
}

// WriteFor is Write for any subject, with the name of the objects.
func (p Permissions) WriteFor(ctx context.Context, name string, subject rbacv1.Subject, c client.Client) (changed bool, err error) {
	for _, one := range p.objects(name, subject) {
		result, err := controllerutil.CreateOrUpdate(ctx, c, one.object, func() error {
			if one.object.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] != "false" {
				one.fill()
			}
			return nil
		})
		if err != nil {
			return changed, fmt.Errorf("writing %T %s: %w", one.object, one.object.GetName(), err)
		}
		changed = changed || result != controllerutil.OperationResultNone
	}
	return changed, nil
}

// newRBACClient returns a client for the objects. It needs no discovery.
func newRBACClient(config *rest.Config, over *http.Client) (client.Client, error) {
	kinds := runtime.NewScheme()
	if err := errors.Join(rbacv1.AddToScheme(kinds), corev1.AddToScheme(kinds)); err != nil {
		return nil, fmt.Errorf("adding kinds: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{rbacv1.SchemeGroupVersion, corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	for kind, scope := range map[string]meta.RESTScope{
		"ClusterRole": meta.RESTScopeRoot, "ClusterRoleBinding": meta.RESTScopeRoot,
		"Role": meta.RESTScopeNamespace, "RoleBinding": meta.RESTScopeNamespace,
	} {
		mapper.Add(rbacv1.SchemeGroupVersion.WithKind(kind), scope)
	}
	config = rest.CopyConfig(config)
	// Simulated API servers have no other encoding.
	config.ContentType = runtime.ContentTypeJSON
	c, err := client.New(config, client.Options{HTTPClient: over, Scheme: kinds, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	return c, nil
}
