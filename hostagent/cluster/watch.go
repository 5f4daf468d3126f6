package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

// watchSeconds is when the API server ends a watch, so that a lost connection is
// noticed.
const watchSeconds = int64(240)

// WatchAPIServers calls the function with the API servers, as host:port in
// order, whenever they change. It returns when the watch ends. It ignores an
// empty list: no API server could have sent it.
func (c *Client) WatchAPIServers(ctx context.Context, changed func([]string) error) error {
	err := c.watch(ctx, endpointSlices, metav1.NamespaceDefault, "kubernetes", func(slice *unstructured.Unstructured) error {
		if servers := apiServers(slice); len(servers) > 0 {
			return changed(servers)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("watching API servers: %w", err)
	}
	return nil
}

// watch calls the function with an object, if it exists, and whenever it
// changes. It returns when the watch ends.
func (c *Client) watch(ctx context.Context, resource schema.GroupVersionResource, namespace, name string, changed func(*unstructured.Unstructured) error) error {
	config := *c.config
	config.Timeout = 0 // a watch lasts
	client, err := dynamic.NewForConfig(&config)
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	seconds := watchSeconds
	events, err := client.Resource(resource).Namespace(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type != watch.Added && event.Type != watch.Modified {
			continue
		}
		object, is := event.Object.(*unstructured.Unstructured)
		if !is {
			continue
		}
		if err := changed(object); err != nil {
			return err
		}
	}
	return nil
}

// apiServers returns the addresses in an EndpointSlice.
func apiServers(slice *unstructured.Unstructured) []string {
	ports, _, _ := unstructured.NestedSlice(slice.Object, "ports")
	endpoints, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
	if len(ports) == 0 {
		return nil
	}
	first, _ := ports[0].(map[string]any)
	port, _ := first["port"].(int64)
	if port == 0 {
		return nil
	}
	var servers []string
	for _, endpoint := range endpoints {
		fields, _ := endpoint.(map[string]any)
		addresses, _, _ := unstructured.NestedStringSlice(fields, "addresses")
		if len(addresses) > 0 {
			servers = append(servers, net.JoinHostPort(addresses[0], strconv.FormatInt(port, 10)))
		}
	}
	slices.Sort(servers)
	return slices.Compact(servers)
}
