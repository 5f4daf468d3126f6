package cluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes   = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// SecretKey identifies a Secret.
type SecretKey struct {
	Namespace, Name string
}

// WatchSecret calls the function with the value of a key of a Secret, if it
// exists, and whenever the Secret changes. It returns when the watch ends.
func (c *Client) WatchSecret(ctx context.Context, of SecretKey, key string, changed func([]byte) error) error {
	err := c.watch(ctx, secrets, of.Namespace, of.Name, func(secret *unstructured.Unstructured) error {
		encoded, _, err := unstructured.NestedString(secret.Object, "data", key)
		if err != nil {
			return fmt.Errorf("reading key %s: %w", key, err)
		}
		value, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return errors.New("reading key " + key + ": it is not base64")
		}
		return changed(value)
	})
	if err != nil {
		return fmt.Errorf("watching Secret %s/%s: %w", of.Namespace, of.Name, err)
	}
	return nil
}

// Condition is a condition of a Node.
type Condition struct {
	Type string
	// True is the status.
	True            bool
	Reason, Message string
}

// SetNodeCondition sets a condition of a Node, unless the Node has it already. A
// kubelet may change the status of its own Node.
func (c *Client) SetNodeCondition(ctx context.Context, node string, condition Condition) error {
	found, err := c.dynamic.Resource(nodes).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Node: %w", err)
	}
	status := string(metav1.ConditionFalse)
	if condition.True {
		status = string(metav1.ConditionTrue)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	wanted := map[string]any{
		"type": condition.Type, "status": status, "reason": condition.Reason, "message": condition.Message,
		"lastHeartbeatTime": now, "lastTransitionTime": now,
	}
	list, _, err := unstructured.NestedSlice(found.Object, "status", "conditions")
	if err != nil {
		return fmt.Errorf("reading conditions of the Node: %w", err)
	}
	for _, one := range list {
		is, ok := one.(map[string]any)
		if !ok || is["type"] != condition.Type || is["status"] != status {
			continue
		}
		if is["reason"] == condition.Reason && is["message"] == condition.Message {
			return nil
		}
		wanted["lastTransitionTime"] = is["lastTransitionTime"]
	}
	// Conditions are merged by type.
	if err := c.patchNode(ctx, node, map[string]any{"status": map[string]any{"conditions": []any{wanted}}}, "status"); err != nil {
		return fmt.Errorf("setting condition %s of the Node: %w", condition.Type, err)
	}
	return nil
}

// Capacity is the hardware that a kubelet has reported.
type Capacity struct {
	CPUs, MemoryKiB int64
	// DiskKiB is the size of the file system for pods; zero if the kubelet does not
	// report it.
	DiskKiB int64
}

// Capacity returns the capacity of a Node.
func (c *Client) Capacity(ctx context.Context, node string) (Capacity, error) {
	found, err := c.dynamic.Resource(nodes).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return Capacity{}, fmt.Errorf("reading Node: %w", err)
	}
	value := func(name, missing string) (int64, error) {
		text, _, err := unstructured.NestedString(found.Object, "status", "capacity", name)
		if err != nil {
			return 0, fmt.Errorf("reading capacity of the Node: %w", err)
		}
		q, err := resource.ParseQuantity(cmp.Or(text, missing))
		if err != nil {
			return 0, fmt.Errorf("reading capacity of the Node: %w", err)
		}
		return q.Value(), nil
	}
	cpus, err := value("cpu", "")
	memory, memoryErr := value("memory", "")
	disk, diskErr := value("ephemeral-storage", "0")
	return Capacity{CPUs: cpus, MemoryKiB: memory >> 10, DiskKiB: disk >> 10}, errors.Join(err, memoryErr, diskErr)
}

// PodReady returns nil if a pod in kube-system is ready. A kubelet may read the pods
// of its own Node.
func (c *Client) PodReady(ctx context.Context, name string, annotations map[string]string) error {
	pod, err := c.dynamic.Resource(pods).Namespace(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Pod %s: %w", name, err)
	}
	for annotation, value := range annotations {
		if pod.GetAnnotations()[annotation] != value {
			return fmt.Errorf("pod %s was not replaced yet", name)
		}
	}
	ready, err := isReady(pod)
	if err != nil {
		return fmt.Errorf("reading conditions of Pod %s: %w", name, err)
	}
	if ready {
		return nil
	}
	return fmt.Errorf("pod %s is not ready", name)
}

// NodeReady returns nil if a Node is ready and its kubelet has a version.
func (c *Client) NodeReady(ctx context.Context, node, version string) error {
	found, err := c.dynamic.Resource(nodes).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Node: %w", err)
	}
	// The kubelet writes both at once.
	if has, _, err := unstructured.NestedString(found.Object, "status", "nodeInfo", "kubeletVersion"); err != nil || has != version {
		return fmt.Errorf("the kubelet has reported version %q, not %s", has, version)
	}
	ready, err := isReady(found)
	if err != nil {
		return fmt.Errorf("reading conditions of the Node: %w", err)
	}
	if !ready {
		return errors.New("the Node is not ready")
	}
	return nil
}

// isReady reports whether an object has the condition Ready.
func isReady(object *unstructured.Unstructured) (bool, error) {
	list, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return false, err //nolint:wrapcheck // the callers wrap it
	}
	for _, one := range list {
		if is, ok := one.(map[string]any); ok && is["type"] == "Ready" && is["status"] == string(metav1.ConditionTrue) {
			return true, nil
		}
	}
	return false, nil
}

// LabelNode sets labels of a Node, and removes those that are nil. A kubelet may
// change labels of its own Node, except for those of restricted domains.
func (c *Client) LabelNode(ctx context.Context, node string, labels map[string]*string) error {
	if err := c.patchNode(ctx, node, map[string]any{"metadata": map[string]any{"labels": labels}}); err != nil {
		return fmt.Errorf("labeling the Node: %w", err)
	}
	return nil
}

func (c *Client) patchNode(ctx context.Context, node string, patch map[string]any, subresources ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("writing patch: %w", err)
	}
	_, err = c.dynamic.Resource(nodes).Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
	return err //nolint:wrapcheck // the callers wrap it
}
