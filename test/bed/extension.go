package bed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// bootstrapManager has a runtime extension.
	bootstrapManager = "nova-bootstrap"
	// extensionPort is its port.
	extensionPort = 9449
	// extension is the name of its Secret and of its ExtensionConfig.
	extension = "nova-bootstrap-runtime-extension"
)

// extensionAddress is where the runtime extension listens.
func (b *Bed) extensionAddress() string { return loopback(b.port(extensionPort)) }

// RegisterExtension registers the runtime extension of nova-bootstrap as an
// administrator does, except for the address: there is no pod network. It returns
// once the core manager has called it.
func (b *Bed) RegisterExtension(ctx context.Context) error {
	config := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"clientConfig": map[string]any{"url": "https://" + b.extensionAddress()},
	}}}
	config.SetGroupVersionKind(schema.GroupVersionKind{Group: "runtime.cluster.x-k8s.io", Version: "v1beta2", Kind: "ExtensionConfig"})
	config.SetName(extension)
	config.SetAnnotations(map[string]string{"runtime.cluster.x-k8s.io/inject-ca-from-secret": "nova-bootstrap-system/" + extension})
	if err := b.Client.Create(ctx, config); err != nil {
		return fmt.Errorf("registering runtime extension: %w", err)
	}
	return await(ctx, time.Minute, "waiting for the runtime extension", func(ctx context.Context) error {
		if err := b.Client.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		handlers, _, err := unstructured.NestedSlice(config.Object, "status", "handlers")
		if err == nil && len(handlers) == 0 {
			err = errors.New("no handlers were discovered")
		}
		return err
	})
}
