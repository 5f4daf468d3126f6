package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pod is one controller manager that runs with the settings of its Deployment,
// with an API server that belongs to no bed.
type Pod struct {
	// Objects are the objects that its components install in addition to the
	// Deployment. Webhooks are called at 127.0.0.1:9443.
	Objects []*unstructured.Unstructured
	// Health is host:port of /readyz.
	Health string

	manager manager
	layout  layout
}

// podWebhooks is where the API server calls a pod's webhooks.
const podWebhooks = "127.0.0.1:9443"

// NewPod renders a kustomization of components. The files of the pod go below
// dir; bundle is the authority of the manager's webhooks, if it has any.
func NewPod(ctx context.Context, kubectl, kustomization, name, dir string, bundle []byte) (*Pod, error) {
	rendered, err := render(ctx, kubectl, kustomization)
	if err != nil {
		return nil, err
	}
	components, err := parse(resolve(rendered, nil))
	if err != nil {
		return nil, err
	}
	p := &Pod{layout: layout(dir)}
	if p.manager, p.Objects, err = takeManager(name, 0, components); err != nil {
		return nil, err
	}
	p.Health = p.manager.health
	for _, object := range p.Objects {
		if err := pointWebhooks(object, "https://"+podWebhooks, bundle); err != nil {
			return nil, err
		}
	}
	return p, aggregate(p.Objects)
}

// Admit gives the manager a token of its own service account. Its objects are
// applied. ca is the authority of the API server.
func (p *Pod) Admit(ctx context.Context, c client.Client, ca []byte) error {
	if err := p.manager.awaitRoles(ctx, c); err != nil {
		return err
	}
	return p.manager.admit(ctx, p.layout, c, ca)
}

// Command runs program as the manager, against the API server at an address.
// The process that it starts becomes the program.
func (p *Pod) Command(ctx context.Context, program, server string, extra ...string) (*exec.Cmd, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's address: %w", err)
	}
	process := p.manager.process(p.layout, program, extra...)
	cmd := exec.CommandContext(ctx, process.Args[0], process.Args[1:]...)
	// The last one of a name counts.
	cmd.Env = append(cmd.Environ(), process.Env...)
	cmd.Env = append(cmd.Env, "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	return cmd, nil
}

// aggregate puts the roles together that are made of others. A controller does
// that in a cluster, and an API server alone has none.
func aggregate(objects []*unstructured.Unstructured) error {
	roles := map[*unstructured.Unstructured]*rbacv1.ClusterRole{}
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			return fmt.Errorf("reading ClusterRole %s: %w", object.GetName(), err)
		}
		roles[object] = role
	}
	var errs []error
	for object, role := range roles {
		if role.AggregationRule == nil {
			continue
		}
		for _, part := range roles {
			if part != role && slices.ContainsFunc(role.AggregationRule.ClusterRoleSelectors, selects(part)) {
				role.Rules = append(role.Rules, part.Rules...)
			}
		}
		full, err := runtime.DefaultUnstructuredConverter.ToUnstructured(role)
		errs = append(errs, err)
		object.Object["rules"] = full["rules"]
	}
	return errors.Join(errs...)
}

// selects returns the selectors that select a role.
func selects(role *rbacv1.ClusterRole) func(metav1.LabelSelector) bool {
	return func(s metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		return err == nil && selector.Matches(labels.Set(role.Labels))
	}
}
