package follow

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

const (
	etcd = "etcd"
	// etcdDir has the manifest that kubeadm makes, and kubeadm's configuration for it.
	etcdDir = "/var/lib/nova/etcd"
	// clientURLsAnnotation is set by kubeadm.
	clientURLsAnnotation = "kubeadm.kubernetes.io/etcd.advertise-client-urls"
	// changedAnnotation on a static pod has the time of its last change by the agent.
	changedAnnotation = "nova-platform.io/changed"
)

// changeEtcd changes the member of etcd on the node to the manifest that the present
// kubeadm makes, if it differs, and waits until the API server is ready with it.
//
// kubeadm upgrade would copy the data of etcd with each attempt. It would also write
// the copy over the data if a member does not respond in time, and the member would
// lose entries that it has acknowledged.
func changeEtcd(ctx context.Context, m *machine.Machine, client *cluster.Client, node string) error {
	is, err := loadPod(m, etcd)
	if err != nil || is == nil {
		return err // it may run elsewhere
	}
	wanted, err := etcdPod(ctx, m, client, node, is)
	if err := errors.Join(err, m.Remove(etcdDir)); err != nil {
		return err
	}
	if sameMember(is, wanted) {
		return nil
	}
	m.Logf("Changing etcd from %s to %s", is.image(), wanted.image())
	if err := wanted.deploy(ctx, m, client, etcd, node, changedAnnotation); err != nil {
		return err
	}
	return waitFor(ctx, m, func() error { return client.Ready(ctx) })
}

// etcdPod returns the pod of etcd that the present kubeadm makes for the node.
func etcdPod(ctx context.Context, m *machine.Machine, client *cluster.Client, node string, is pod) (pod, error) {
	shared, err := client.ClusterConfiguration(ctx)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(is.annotation(clientURLsAnnotation))
	if err != nil || endpoint.Hostname() == "" {
		return nil, fmt.Errorf("reading manifest: annotation %s has no address", clientURLsAnnotation)
	}
	own := map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration",
		"nodeRegistration": map[string]any{"name": node, "criSocket": "unix:///run/containerd/containerd.sock"},
		"localAPIEndpoint": map[string]any{"advertiseAddress": endpoint.Hostname()},
		// As on the first boot: etcd is not restarted while it reads much data.
		"timeouts": map[string]any{"controlPlaneComponentHealthCheck": "30m0s"},
	}
	if m.Exists(patchesDir) {
		own["patches"] = map[string]any{"directory": m.At(patchesDir)}
	}
	text, err := yaml.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("writing kubeadm's configuration: %w", err)
	}
	const config = etcdDir + "/kubeadm.yaml"
	if err := m.Write(config, string(text)+"---\n"+shared, 0o600); err != nil {
		return nil, err
	}
	kubeadm := m.With("KUBEADM_INIT_DRYRUN_DIR=" + m.At(etcdDir))
	if err := kubeadm.Run(ctx, "kubeadm", "init", "phase", "etcd", "local", "--dry-run", "--config", m.At(config)); err != nil {
		return nil, err
	}
	content, err := m.Load(etcdDir + "/etcd.yaml")
	if err != nil {
		return nil, err
	}
	return readPod(content)
}

// sameMember reports whether two pods run etcd in the same way. A member that has
// started does not read the arguments about the initial cluster, and for other probes
// it is not restarted.
func sameMember(is, wanted pod) bool {
	return is.image() == wanted.image() && slices.Equal(is.arguments(), wanted.arguments())
}

// etcdStays reports whether etcd keeps its present manifest when the former version of
// Kubernetes is restored. An older minor version of etcd may not read the data of a
// newer one. kubeadm does not restore it either once it was ready, and a former API
// server works with it.
func etcdStays(former, present string) bool {
	was, err := readPod(former)
	if err != nil {
		return true
	}
	is, err := readPod(present)
	if err != nil {
		return false // it did not run
	}
	before, after := versionOf(was.image()), versionOf(is.image())
	if before == nil || after == nil {
		return was.image() != is.image()
	}
	return before.Major() != after.Major() || before.Minor() != after.Minor()
}

// versionOf returns the version in the tag of an image, or nil.
func versionOf(image string) *version.Version {
	image, _, _ = strings.Cut(image, "@")
	parsed, err := version.ParseGeneric(image[strings.LastIndex(image, ":")+1:])
	if err != nil {
		return nil
	}
	return parsed
}

// pod is the manifest of a static pod.
type pod map[string]any

func readPod(content string) (pod, error) {
	p := pod{}
	if err := yaml.Unmarshal([]byte(content), &p); err != nil {
		return nil, fmt.Errorf("reading manifest: %w", err)
	}
	if _, ok := p["metadata"].(map[string]any); !ok {
		return nil, errors.New("reading manifest: it has no metadata")
	}
	return p, nil
}

// loadPod reads the manifest of a static pod. It is nil if the node has none.
func loadPod(m *machine.Machine, name string) (pod, error) {
	if !m.Exists(manifestOf(name)) {
		return nil, nil //nolint:nilnil // not all nodes have all pods
	}
	content, err := m.Load(manifestOf(name))
	if err != nil {
		return nil, err
	}
	return readPod(content)
}

func (p pod) annotation(name string) string {
	value, _, _ := unstructured.NestedString(p, "metadata", "annotations", name)
	return value
}

// container returns the first container.
func (p pod) container() map[string]any {
	list, _, _ := unstructured.NestedSlice(p, "spec", "containers")
	if len(list) == 0 {
		return nil
	}
	first, _ := list[0].(map[string]any)
	return first
}

func (p pod) image() string {
	image, _ := p.container()["image"].(string)
	return image
}

// arguments returns the command without the arguments about the initial cluster, sorted.
func (p pod) arguments() []string {
	all, _, _ := unstructured.NestedStringSlice(p.container(), "command")
	all = slices.DeleteFunc(all, func(arg string) bool { return strings.HasPrefix(arg, "--initial-cluster") })
	slices.Sort(all)
	return all
}

// deploy replaces a static pod of the node, and waits until the new pod is ready. The
// annotation with the time shows which one it is.
func (p pod) deploy(ctx context.Context, m *machine.Machine, client *cluster.Client, name, node, annotation string) error {
	at := m.Now().UTC().Format(time.RFC3339Nano)
	if err := unstructured.SetNestedField(p, at, "metadata", "annotations", annotation); err != nil {
		return fmt.Errorf("writing manifest: %w", err)
	}
	changed, err := yaml.Marshal(p)
	if err != nil {
		return fmt.Errorf("writing manifest: %w", err)
	}
	if err := m.Edit(manifestOf(name), string(changed), 0o600); err != nil {
		return err
	}
	return waitFor(ctx, m, func() error { return client.PodReady(ctx, name+"-"+node, map[string]string{annotation: at}) })
}
