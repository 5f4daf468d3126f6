package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// authoritiesMap is the ConfigMap with the CAs of the API servers. Pods with the token of
// a service account have it as a file.
const authoritiesMap = "kube-root-ca.crt"

// pod has the fields of a Pod that are read here.
type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Volumes []struct {
			configMapSource `json:",inline"`

			Projected struct {
				Sources []configMapSource `json:"sources"`
			} `json:"projected"`
		} `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase     string       `json:"phase"`
		StartTime *metav1.Time `json:"startTime"`
	} `json:"status"`
}

type configMapSource struct {
	ConfigMap struct {
		Name string `json:"name"`
	} `json:"configMap"`
}

// EvictPods evicts the pods of a Node that have the CAs of the API servers as a file and
// started before a time: a program may read them only when it starts. A controller creates
// the pods again; those without one stay, and their names are returned. The error names
// the pods that are still there; it is nil if there is none. A kubelet may evict the pods
// of its own Node.
func (c *Client) EvictPods(ctx context.Context, node string, before time.Time) (staying []string, err error) {
	list, err := c.dynamic.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing pods of the Node: %w", err)
	}
	var left []error
	for i := range list.Items {
		p := &pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, p); err != nil {
			return nil, fmt.Errorf("reading pod %s: %w", list.Items[i].GetName(), err)
		}
		name := p.Metadata.Namespace + "/" + p.Metadata.Name
		switch {
		case !p.readsAuthorities() || p.Status.StartTime == nil || !p.Status.StartTime.Time.Before(before):
		case p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed":
		case !p.Metadata.DeletionTimestamp.IsZero():
			left = append(left, fmt.Errorf("pod %s is being deleted", name))
		case metav1.GetControllerOf(&p.Metadata) == nil:
			staying = append(staying, name)
		default:
			left = append(left, c.evict(ctx, &p.Metadata))
		}
	}
	return staying, errors.Join(left...)
}

// evict requests the eviction of a pod. It returns why the pod is still there.
func (c *Client) evict(ctx context.Context, pod *metav1.ObjectMeta) error {
	_, err := c.dynamic.Resource(pods).Namespace(pod.Namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"namespace": pod.Namespace, "name": pod.Name},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": string(pod.UID)}},
	}}, metav1.CreateOptions{FieldManager: fieldManager}, "eviction")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return fmt.Errorf("pod %s/%s was evicted just now", pod.Namespace, pod.Name)
}

// readsAuthorities reports whether a pod has the CAs of the API servers as a file.
func (p *pod) readsAuthorities() bool {
	for _, v := range p.Spec.Volumes {
		if slices.ContainsFunc(append(v.Projected.Sources, v.configMapSource), func(s configMapSource) bool { return s.ConfigMap.Name == authoritiesMap }) {
			return true
		}
	}
	return false
}
