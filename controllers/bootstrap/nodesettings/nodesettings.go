package nodesettings

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/apply"
)

const (
	// fieldManager owns the fields of the Secrets.
	fieldManager = "nova-bootstrap"
	// nodeUser is the prefix of the user names of kubelets.
	nodeUser = "system:node:"
	// maxText limits a text from the workload cluster, in bytes.
	maxText = 512
)

// readRule allows to read one Secret, or all if there is no name.
func readRule(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names}
}

// Rules are the permissions of the manager's user in the namespace of the
// settings. They include those of nodes, because a user can only grant permissions
// that it has.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		readRule(),
		{Verbs: []string{"create", "patch"}, APIGroups: []string{""}, Resources: []string{"secrets"}},
		{Verbs: []string{"create", "get", "update"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}},
	}
}

// ErrOtherNode means that a Machine refers to a Node that is not its own.
var ErrOtherNode = errors.New("the Node has another name than its Machine")

// NodeOf reads the Node of a machine that has joined. A Node has the name of its
// Machine: any other one comes from a user of the workload cluster, who has given
// it the provider ID of the machine.
func NodeOf(ctx context.Context, c client.Reader, machine *clusterv1.Machine) (*corev1.Node, error) {
	if machine.Status.NodeRef.Name != machine.Name {
		return nil, ErrOtherNode
	}
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: machine.Name}, node); err != nil {
		return nil, fmt.Errorf("reading Node: %w", err)
	}
	return node, nil
}

// Allow lets the host agent of a node read the node's settings, and no others.
func Allow(ctx context.Context, c client.Client, node *corev1.Node) error {
	meta := metav1.ObjectMeta{Namespace: nodeconfig.SettingsNamespace, Name: nodeconfig.SettingsName(node.Name)}
	role, binding := &rbacv1.Role{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta}
	err := write(ctx, c, node, role, func() { role.Rules = []rbacv1.PolicyRule{readRule(meta.Name)} })
	if apierrors.IsNotFound(err) {
		// The permissions of the manager's own user include the namespace. With the
		// kubeconfig of another control plane provider it is created here.
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nodeconfig.SettingsNamespace}}
		if err := c.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating namespace %s: %w", namespace.Name, err)
		}
		err = write(ctx, c, node, role, func() { role.Rules = []rbacv1.PolicyRule{readRule(meta.Name)} })
	}
	if err != nil {
		return fmt.Errorf("writing Role %s: %w", meta.Name, err)
	}
	err = write(ctx, c, node, binding, func() {
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: nodeUser + node.Name}}
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
	})
	if err != nil {
		return fmt.Errorf("writing RoleBinding %s: %w", meta.Name, err)
	}
	return nil
}

// write creates or updates an object that the node owns. An object that a former
// Node of the same name owned changes its owner.
func write(ctx context.Context, c client.Client, node *corev1.Node, object client.Object, fill func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, c, object, func() error {
		object.SetOwnerReferences([]metav1.OwnerReference{owner(node)})
		fill()
		return nil
	})
	return err //nolint:wrapcheck // the callers wrap it
}

func owner(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// Write stores the desired settings of a node.
func Write(ctx context.Context, c client.Client, node *corev1.Node, packed []byte) error {
	u, err := apply.Unstructured(&corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: nodeconfig.SettingsNamespace, Name: nodeconfig.SettingsName(node.Name), OwnerReferences: []metav1.OwnerReference{owner(node)},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{nodeconfig.SettingsKey: packed},
	})
	if err != nil {
		return fmt.Errorf("writing settings of node %s: %w", node.Name, err)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing settings of node %s: %w", node.Name, err)
	}
	return nil
}

// Settings are the desired settings of a node.
type Settings struct {
	// Packed is their content, and Revision identifies it.
	Packed   []byte
	Revision string
	// Programs is true if the agent can change the version of Kubernetes to that of
	// the Machine.
	Programs bool
	// Configuration is the ClusterConfiguration that kubeadm must have stored before
	// a control plane node changes its components; nil for workers.
	Configuration []byte
}

// Report is the report of a host agent.
type Report struct {
	// Applied is true if the node has the revision of the settings.
	Applied bool
	// Text describes the progress or the failure. It comes from the workload
	// cluster and is limited.
	Text string
}

// ReportOf returns the report of a node about a revision. It returns false if the
// node has never reported: its host agent does not follow its settings.
func ReportOf(node *corev1.Node, revision string) (Report, bool) {
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type != nodeconfig.ConfiguredCondition {
			continue
		}
		reported, text, found := nodeconfig.ReadMessage(c.Message)
		switch {
		case !found || reported != revision:
			return Report{Text: "waiting for the host agent to read the settings"}, true
		case c.Status == corev1.ConditionTrue:
			return Report{Applied: true, Text: "the settings are applied"}, true
		}
		return Report{Text: Printable(text)}, true
	}
	return Report{}, false
}

// Printable limits a text of a workload cluster and removes characters that do not
// belong in a condition.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text[:min(len(text), maxText)])
	return strings.ToValidUTF8(text, "")
}
