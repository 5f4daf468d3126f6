package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// timeout limits a request.
	timeout = 10 * time.Second
	// fieldManager is the owner of the fields that the agent applies.
	fieldManager = "nova-host-agent"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// Client is a client of the cluster.
type Client struct {
	config    *rest.Config
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
}

// Load makes a client from a kubeconfig file.
func Load(path string) (*Client, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	return New(content)
}

// New makes a client from a kubeconfig.
func New(kubeconfig []byte) (*Client, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	return fromConfig(config)
}

func fromConfig(config *rest.Config) (*Client, error) {
	config.Timeout = timeout
	// The agent sends one request at a time, and waits between them.
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	return &Client{config: config, dynamic: client, discovery: found}, nil
}

// Local returns the client whose connections go to a port of the machine, where
// a load balancer or an API server listens. The server's certificate is valid
// for the name kubernetes.
func (c *Client) Local(port int) (*Client, error) {
	config := rest.CopyConfig(c.config)
	config.Host = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	config.ServerName = "kubernetes"
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
	return fromConfig(config)
}

// HasConfigMap returns nil if a ConfigMap of kube-system can be read.
func (c *Client) HasConfigMap(ctx context.Context, name string) error {
	if _, err := c.dynamic.Resource(configMaps).Namespace(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	return nil
}

// ClusterConfiguration returns kubeadm's stored configuration.
func (c *Client) ClusterConfiguration(ctx context.Context) (string, error) {
	const name = "kubeadm-config"
	config, err := c.dynamic.Resource(configMaps).Namespace(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	text, _, err := unstructured.NestedString(config.Object, "data", "ClusterConfiguration")
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	return text, nil
}

// KubernetesVersion returns the version in kubeadm's stored configuration.
func (c *Client) KubernetesVersion(ctx context.Context) (string, error) {
	text, err := c.ClusterConfiguration(ctx)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if version, is := strings.CutPrefix(line, "kubernetesVersion:"); is {
			return strings.Trim(version, " \"'\n"), nil
		}
	}
	return "", errors.New("kubeadm's stored configuration has no version")
}

// Ready returns nil if an API server is ready.
func (c *Client) Ready(ctx context.Context) error {
	if err := c.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("reading /readyz: %w", err)
	}
	return nil
}
