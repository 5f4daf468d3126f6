package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
)

const (
	// probeFailure is how long an API server may be silent before its control
	// plane stops to count as available: two probes.
	probeFailure = 20 * time.Second
	// lookAgain is when an unhealthy tenant is looked at again. A probe that
	// succeeds again, or etcd that mends itself, tells nobody.
	lookAgain = 10 * time.Second
	// etcdFresh is how long an answer of a healthy etcd counts if nothing
	// else changes.
	etcdFresh = time.Minute
	// etcdTTL is how long the certificate for etcd is good for.
	etcdTTL = 10 * time.Minute
	// connectRetry is when a tenant that did not answer is tried again. Cluster
	// API's own 30 s would be half the time a control plane needs to come up.
	connectRetry = 5 * time.Second
)

// TenantOptions configures Cluster API's cluster cache for what Tenants reads:
// it keeps nodes, kubeadm's static pods and kubeadm's configuration in memory,
// and nothing else.
func TenantOptions(userAgent string, secrets client.Reader, watchFilter string) clustercache.Options {
	return clustercache.Options{
		SecretClient:     secrets,
		WatchFilterValue: watchFilter,
		Client:           clustercache.ClientOptions{UserAgent: userAgent},
		Cache: clustercache.CacheOptions{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {
					LabelSelector: labels.SelectorFromSet(labels.Set{tierLabel: tierControlPlane}),
				}}},
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {
					FieldSelector: fields.OneTermEqualSelector("metadata.name", kubeadmConfigName),
				}}},
			},
		},
	}
}

// SetupTenants adds a cluster cache to mgr and returns Tenants over it.
func SetupTenants(ctx context.Context, mgr ctrl.Manager, options clustercache.Options,
	controllerOptions controller.Options, authority pki.Authority,
) (Tenants, error) {
	clusters, err := clustercache.SetupWithManager(ctx, mgr, options, controllerOptions)
	if err != nil {
		return nil, fmt.Errorf("setting up cluster cache: %w", err)
	}
	if c, ok := clusters.(interface{ SetConnectionCreationRetryInterval(interval time.Duration) }); ok {
		c.SetConnectionCreationRetryInterval(connectRetry)
	}
	return &tenants{clusters: clusters, authority: authority}, nil
}

// tenants is Tenants over Cluster API's cluster cache.
type tenants struct {
	clusters  clustercache.ClusterCache
	authority pki.Authority
	watcher   Watcher
	of        func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request

	mu   sync.Mutex
	etcd map[client.ObjectKey]etcdAnswer
}

// etcdAnswer is the last one.
type etcdAnswer struct {
	fingerprint string
	at          time.Time
	health      *etcd.Health
	silence     string
}

// Source implements Tenants.
func (t *tenants) Source(controller string, of handler.MapFunc) source.Source {
	return t.clusters.GetClusterSource(controller, of, clustercache.WatchForProbeFailure(probeFailure))
}

// Notify implements Tenants.
func (t *tenants) Notify(w Watcher, of func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request) {
	t.watcher, t.of = w, of
}

// Observe implements Tenants.
func (t *tenants) Observe(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) Facts {
	facts, pods, err := t.read(ctx, cluster)
	if err != nil {
		t.forget(cluster)
		facts.Silence = silence(err)
		if errors.Is(err, clustercache.ErrClusterNotConnected) && t.clusters.GetHealthCheckingState(ctx, cluster).LastProbeTime.IsZero() {
			// A first attempt that fails tells nobody.
			facts.Early, facts.Again = true, connectRetry
		}
		return facts
	}
	if state := t.clusters.GetHealthCheckingState(ctx, cluster); state.ConsecutiveFailures > 0 {
		facts.Again = lookAgain
		if time.Since(state.LastProbeSuccessTime) >= probeFailure {
			facts.Answers = false
			facts.Silence = "The API server does not answer"
			return facts
		}
	}
	answer := t.askEtcd(ctx, cluster, fingerprint(machines, facts.Nodes, pods), facts.Nodes)
	facts.Etcd, facts.EtcdSilence = answer.health, answer.silence
	if facts.KubeadmConfig && !fine(answer.health, facts.Nodes) {
		facts.Again = lookAgain
	}
	return facts
}

// read reads what the cache knows, and has it told when that changes.
func (t *tenants) read(ctx context.Context, cluster client.ObjectKey) (Facts, []corev1.Pod, error) {
	c, err := t.clusters.GetClient(ctx, cluster)
	if err != nil {
		return Facts{}, nil, err
	}
	if err := t.watch(ctx, cluster); err != nil {
		return Facts{}, nil, err
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return Facts{}, nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{tierLabel: tierControlPlane}); err != nil {
		return Facts{}, nil, fmt.Errorf("listing static pods: %w", err)
	}
	err = c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeadmConfigName}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		return Facts{}, nil, fmt.Errorf("reading kubeadm's configuration: %w", err)
	}
	return Facts{Answers: true, KubeadmConfig: !apierrors.IsNotFound(err), Nodes: newNodes(nodes.Items, pods.Items)}, pods.Items, nil
}

// watch asks to be told of changes. The cluster cache adds a watch only once a
// connection.
func (t *tenants) watch(ctx context.Context, cluster client.ObjectKey) error {
	if t.watcher == nil {
		return nil
	}
	h := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrl.Request { return t.of(ctx, cluster) })
	for _, w := range []struct {
		name   string
		object client.Object
	}{
		{"controlplane-nodes", &corev1.Node{}},
		{"controlplane-pods", &corev1.Pod{}},
		{"controlplane-kubeadm", &corev1.ConfigMap{}},
	} {
		err := t.clusters.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
			Name: w.name, Watcher: t.watcher, Kind: w.object, EventHandler: h, Predicates: []predicate.Predicate{matters()},
		}))
		if err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	return nil
}

// matters lets pass what can change Facts. A kubelet writes more than that.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		switch is := e.ObjectNew.(type) {
		case *corev1.Node:
			was, ok := e.ObjectOld.(*corev1.Node)
			return !ok || !slices.Equal(newNodes([]corev1.Node{*was}, nil), newNodes([]corev1.Node{*is}, nil))
		case *corev1.Pod:
			was, ok := e.ObjectOld.(*corev1.Pod)
			return !ok || fingerprint(nil, nil, []corev1.Pod{*was}) != fingerprint(nil, nil, []corev1.Pod{*is})
		default:
			return false
		}
	}}
}

// askEtcd asks etcd, unless it was healthy a moment ago and nothing changed.
func (t *tenants) askEtcd(ctx context.Context, cluster client.ObjectKey, fingerprint string, nodes []Node) etcdAnswer {
	t.mu.Lock()
	last, ok := t.etcd[cluster]
	t.mu.Unlock()
	if ok && last.fingerprint == fingerprint && fine(last.health, nodes) && time.Since(last.at) < etcdFresh {
		return last
	}
	answer := etcdAnswer{fingerprint: fingerprint, at: time.Now()}
	health, err := t.observeEtcd(ctx, cluster, nodes)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("Asking etcd failed", "error", err.Error())
		answer.silence = "No member of etcd answers through the API server"
	}
	answer.health = health
	etcdObservations.WithLabelValues(result(err)).Inc()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.etcd == nil {
		t.etcd = map[client.ObjectKey]etcdAnswer{}
	}
	t.etcd[cluster] = answer
	return answer
}

// forget drops what etcd said, for it has to be asked anew.
func (t *tenants) forget(cluster client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.etcd, cluster)
}

func (t *tenants) observeEtcd(ctx context.Context, cluster client.ObjectKey, nodes []Node) (*etcd.Health, error) {
	dial, config, err := t.reachEtcd(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return etcd.Observe(ctx, dial, config, askable(nodes))
}

// RemoveMember implements Tenants.
func (t *tenants) RemoveMember(ctx context.Context, cluster client.ObjectKey, nodes []Node, id uint64) error {
	dial, config, err := t.reachEtcd(ctx, cluster)
	if err != nil {
		return err
	}
	// What was said before is no longer true, also if the answer gets lost.
	defer t.forget(cluster)
	return etcd.RemoveMember(ctx, dial, config, askable(nodes), id)
}

// askable are the nodes whose members can be asked: one that is not ready has
// nobody to forward to.
func askable(nodes []Node) []string {
	var names []string
	for _, node := range nodes {
		if node.ControlPlane && node.Ready {
			names = append(names, node.Name)
		}
	}
	return names
}

// reachEtcd returns what a tenant's etcd is reached with.
func (t *tenants) reachEtcd(ctx context.Context, cluster client.ObjectKey) (etcd.Dial, *tls.Config, error) {
	config, err := t.clusters.GetRESTConfig(ctx, cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("reaching API server: %w", err)
	}
	dial, err := etcd.PortForward(config)
	if err != nil {
		return nil, nil, err
	}
	pair, ca, err := t.authority.EtcdClient(ctx, cluster, pki.ClientRequest{
		CommonName: "nova-control-plane", Organizations: []string{adminsGroup}, TTL: etcdTTL,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("issuing etcd certificate: %w", err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("loading etcd certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, nil, errors.New("etcd's CA holds no certificate")
	}
	return dial, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, RootCAs: pool,
	}, nil
}

// CoreDNS implements Tenants.
func (t *tenants) CoreDNS(ctx context.Context, cluster client.ObjectKey) ([]corev1.Pod, error) {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"k8s-app": "kube-dns"}); err != nil {
		return nil, fmt.Errorf("listing CoreDNS pods: %w", err)
	}
	return pods.Items, nil
}

// Evict implements Tenants.
func (t *tenants) Evict(ctx context.Context, cluster client.ObjectKey, pod *corev1.Pod) error {
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("reaching API server: %w", err)
	}
	if err := c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}); err != nil {
		return fmt.Errorf("evicting pod %s: %w", pod.Name, err)
	}
	return nil
}

// fine reports whether there is nothing to say about etcd.
func fine(health *etcd.Health, nodes []Node) bool {
	return health != nil && len(health.Problems(controlPlaneNodes(nodes))) == 0
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// silence says why a tenant does not answer, in words that stay the same.
func silence(err error) string {
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return "The API server does not answer"
	}
	if strings.Contains(err.Error(), "context deadline exceeded") {
		return "The API server answers too slowly"
	}
	return "The API server could not be read: " + err.Error()
}
