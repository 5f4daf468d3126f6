package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// Apply applies the objects of a manifest by server-side apply. The API server
// may not serve a new kind yet: repeat it.
func (c *Client) Apply(ctx context.Context, manifest string) error {
	groups, err := restmapper.GetAPIGroupResources(c.discovery)
	if err != nil {
		return fmt.Errorf("reading the kinds of the cluster: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), len(manifest))
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading manifest: %w", err)
		case len(object.Object) == 0:
			continue
		}
		if err := c.apply(ctx, mapper, object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func (c *Client) apply(ctx context.Context, mapper meta.RESTMapper, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("finding the kind: %w", err)
	}
	var resource dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = c.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err //nolint:wrapcheck // the caller wraps it
}

var (
	daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	// serverName and server are lines of kube-proxy's kubeconfig.
	serverName = regexp.MustCompile(`(?m)^ *tls-server-name: kubernetes\n`)
	server     = regexp.MustCompile(`(?m)^( *)server: https:.*$`)
)

// RedirectKubeProxy configures kube-proxy to connect to a local port. A cluster
// without kube-proxy has nothing to configure. It can be repeated.
func (c *Client) RedirectKubeProxy(ctx context.Context, port int) error {
	const name, key = "kube-proxy", "kubeconfig.conf"
	maps := c.dynamic.Resource(configMaps).Namespace(metav1.NamespaceSystem)
	config, err := maps.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading kube-proxy's configuration: %w", err)
	}
	kubeconfig, _, err := unstructured.NestedString(config.Object, "data", key)
	if err != nil {
		return fmt.Errorf("reading kube-proxy's configuration: %w", err)
	}
	redirected := server.ReplaceAllString(serverName.ReplaceAllString(kubeconfig, ""),
		fmt.Sprintf("${1}server: https://127.0.0.1:%d\n${1}tls-server-name: kubernetes", port))
	if err := unstructured.SetNestedField(config.Object, redirected, "data", key); err != nil {
		return fmt.Errorf("changing kube-proxy's configuration: %w", err)
	}
	// The resource version makes this fail after another change.
	if _, err := maps.Update(ctx, config, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("changing kube-proxy's configuration: %w", err)
	}
	restart := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().UTC().Format(time.RFC3339))
	_, err = c.dynamic.Resource(daemonSets).Namespace(metav1.NamespaceSystem).Patch(ctx, name, types.StrategicMergePatchType, []byte(restart), metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("restarting kube-proxy: %w", err)
	}
	return nil
}
