package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// The first ports of managers. All share one network namespace, where each
// pod would have its own, so each gets the next. Webhooks are at 9443.
const (
	healthPort      = 9500
	diagnosticsPort = 8443
)

// manager is a controller manager as its Deployment describes it.
type manager struct {
	name           string
	namespace      string
	serviceAccount string
	args           []string
	// env are variables that it needs beside those of every pod.
	env                 []string
	health, diagnostics string
	// watches is something that its roles let it watch.
	watches authorizationv1.ResourceAttributes
}

// takeManager splits components into the objects to apply and the manager that
// its Deployment describes.
func takeManager(name string, index int, components []*unstructured.Unstructured) (manager, []*unstructured.Unstructured, error) {
	m, rest, err := takeDeployment(name, components)
	if err != nil {
		return m, nil, err
	}
	// Every manager watches Machines.
	m.watches = authorizationv1.ResourceAttributes{Verb: "watch", Group: clusterv1.GroupVersion.Group, Resource: "machines"}
	m.health = loopback(healthPort + index)
	m.diagnostics = loopback(diagnosticsPort + index)
	m.args = withFlags(m.args, "health-addr="+m.health, "diagnostics-address="+m.diagnostics)
	return m, rest, nil
}

// takeDeployment removes the Deployment from components, because nothing runs
// pods here, and the objects for cert-manager and the pod network.
func takeDeployment(name string, components []*unstructured.Unstructured) (manager, []*unstructured.Unstructured, error) {
	m := manager{name: name}
	var rest []*unstructured.Unstructured
	for _, object := range components {
		switch object.GetKind() {
		case "Deployment":
			deployment := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
				return m, nil, fmt.Errorf("reading Deployment of %s: %w", name, err)
			}
			pod := deployment.Spec.Template.Spec
			m.namespace, m.args = deployment.Namespace, pod.Containers[0].Args
			m.serviceAccount = cmp.Or(pod.ServiceAccountName, "default")
		case "Certificate", "Issuer", "Service":
		default:
			rest = append(rest, object)
		}
	}
	if m.serviceAccount == "" {
		return m, nil, fmt.Errorf("components of %s have no Deployment", name)
	}
	return m, rest, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// withFlags replaces flags, each written name=value, in a command line.
func withFlags(args []string, flags ...string) []string {
	var kept []string
	for _, arg := range args {
		replaced := false
		for _, flag := range flags {
			name, _, _ := strings.Cut(flag, "=")
			given, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			replaced = replaced || name == given
		}
		if !replaced {
			kept = append(kept, arg)
		}
	}
	for _, flag := range flags {
		kept = append(kept, "--"+flag)
	}
	return kept
}

// enterPod makes the files of a service account appear where a pod finds
// them, for one process only, and becomes the program.
const enterPod = `mount -t tmpfs tmpfs /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
mount --bind "$0" /var/run/secrets/kubernetes.io/serviceaccount
exec "$@"`

// account is the directory with the files of the manager's service account.
func (m manager) account(l layout) string { return l.path("pods", m.name, "serviceaccount") }

// process runs the manager the way its pod would, as soon as its service
// account has a token.
func (m manager) process(l layout, program string, extra ...string) supervisor.Process {
	account := m.account(l)
	return supervisor.Process{
		Name: m.name,
		Args: append(append([]string{"unshare", "--mount", "sh", "-euc", enterPod, account, program}, m.args...), extra...),
		Env: append([]string{
			"KUBERNETES_SERVICE_HOST=127.0.0.1",
			"KUBERNETES_SERVICE_PORT=6443",
			"POD_NAMESPACE=" + m.namespace,
			"POD_IP=" + host.Gateway,
		}, m.env...),
		After: []string{filepath.Join(account, "token")},
	}
}

// awaitRoles waits until the API server grants the permissions in the roles of
// the manager. The API server reads new roles with a delay, which is longer for
// aggregated roles, and a manager whose first request is rejected waits for
// seconds until it retries.
func (m manager) awaitRoles(ctx context.Context, c client.Client) error {
	return await(ctx, time.Minute, "waiting for roles of "+m.name, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + m.namespace + ":" + m.serviceAccount,
			ResourceAttributes: &m.watches,
		}}
		if err := c.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%s may not watch %s", review.Spec.User, m.watches.Resource)
		}
		return nil
	})
}

// admit gives the manager a token of its own service account, so that it has
// the permissions of its roles only.
func (m manager) admit(ctx context.Context, l layout, c client.Client, ca []byte) error {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = m.namespace, m.serviceAccount
	seconds := int64(validity / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("requesting token of %s: %w", m.name, err)
	}
	dir := m.account(l)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("writing service account of %s: %w", m.name, err)
	}
	// The manager starts as soon as there is a token, so that comes last and
	// in one step.
	token := filepath.Join(dir, "token")
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, "namespace"), []byte(m.namespace), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600),
		os.WriteFile(token+".new", []byte(request.Status.Token), 0o600),
		os.Rename(token+".new", token),
	)
	if err != nil {
		return fmt.Errorf("writing service account of %s: %w", m.name, err)
	}
	return nil
}

// ready waits until the manager reports that it is ready.
func (b *Bed) ready(ctx context.Context, m manager) error {
	return await(ctx, 2*time.Minute, "waiting for "+m.name, func(ctx context.Context) error { return b.answers(ctx, m) })
}

// answers requests the readiness of the manager once.
func (b *Bed) answers(ctx context.Context, m manager) error {
	_, err := b.get(ctx, "http://"+m.health+"/readyz", "")
	return err
}
