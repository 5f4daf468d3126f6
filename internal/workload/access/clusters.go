package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
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

	"github.com/nova-platform/cluster-api-provider-nova/internal/connections"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/probe"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// CacheOptions configures Cluster API's cluster cache for WorkloadClusters: it caches
// nodes, the static pods of the control plane and kubeadm's configuration only.
func CacheOptions(userAgent string, secrets client.Reader, watchFilter string) clustercache.Options {
	return clustercache.Options{
		SecretClient:     secrets,
		WatchFilterValue: watchFilter,
		Client:           clustercache.ClientOptions{UserAgent: userAgent},
		Cache: clustercache.CacheOptions{
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: facts.Keep},
				&corev1.Pod{}: {Transform: facts.Keep, Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {
					LabelSelector: labels.SelectorFromSet(labels.Set{facts.TierLabel: facts.TierControlPlane}),
				}}},
				&corev1.ConfigMap{}: {Transform: facts.Keep, Namespaces: map[string]cache.Config{metav1.NamespaceSystem: {
					FieldSelector: fields.OneTermEqualSelector("metadata.name", kubeadm.ConfigName),
				}}},
			},
		},
	}
}

// Setup adds a cluster cache to mgr and returns the access through it.
// probePeriod is the maximum interval between two health probes of a workload
// cluster.
func Setup(ctx context.Context, mgr ctrl.Manager, options clustercache.Options,
	controllerOptions controller.Options, authority pki.Authority, user *workload.User, probePeriod time.Duration,
) (*Clusters, error) {
	secrets := options.SecretClient
	options.SecretClient = workload.NewSecrets(secrets, user, mgr.GetEventRecorder("novacontrolplane"))
	cache, err := connections.Setup(ctx, mgr, options, controllerOptions, timelimits.ShortPoll)
	if err != nil {
		return nil, err
	}
	t := &Clusters{clusters: cache, authority: authority, user: user, events: make(chan event.GenericEvent, 1024), forwards: newForwardLimiter()}
	t.start = func(run func(context.Context)) { go run(ctx) }
	t.probes = &probe.Probes{
		Start: t.start, Clusters: mgr.GetClient(), Secrets: secrets, User: user, Longest: probePeriod, Changed: t.changed(ctx), Ended: t.states.Forget,
		Answered: cache.Answered,
	}
	return t, nil
}

// Clusters is the access to workload clusters with Cluster API's cluster cache and one health
// probe per workload cluster.
type Clusters struct {
	clusters  clustercache.ClusterCache
	authority pki.Authority
	// User is the manager's own user in workload clusters.
	user    *workload.User
	probes  *probe.Probes
	watcher clustercache.SourceWatcher[ctrl.Request]
	of      func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request
	// Start runs a function in the background until the process ends.
	start func(run func(ctx context.Context))
	// events are the workload clusters whose state changed.
	events chan event.GenericEvent
	// forwards limits the connections through API servers.
	forwards forwardLimiter

	states reconcile.Memory[client.ObjectKey, *clusterState]
}

// clusterState is the cached state of one workload cluster. All of it can be read
// again.
type clusterState struct {
	etcd     etcdAnswer
	querying chan struct{}
	// nodes are the nodes of the last read.
	nodes []facts.Node
	// unreadableSince is since when the cluster cache cannot be read although the
	// workload cluster answers.
	unreadableSince time.Time
	// seen is when each member of etcd was first observed.
	seen map[uint64]time.Time
	// expiries are the expiry times of the API servers' certificates.
	expiries map[string]expiry
	expiring bool
	// addons are the hash of the synced addons, and when they were synced.
	addons   string
	addonsAt time.Time
}

// Changed returns a function that triggers a reconcile for a workload cluster.
func (t *Clusters) changed(ctx context.Context) func(client.ObjectKey) {
	return func(cluster client.ObjectKey) {
		o := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
		select {
		case t.events <- event.GenericEvent{Object: o}:
		case <-ctx.Done():
		}
	}
}

// withState gives access to the cached state of a workload cluster.
func (t *Clusters) withState(cluster client.ObjectKey, do func(m *clusterState)) {
	t.states.Update(cluster, func(m **clusterState) {
		if *m == nil {
			*m = &clusterState{seen: map[uint64]time.Time{}, expiries: map[string]expiry{}}
		}
		do(*m)
	})
}

// Source implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) Source(controller string, of handler.MapFunc) source.Source {
	return sources{
		t.clusters.GetClusterSource(controller, of, clustercache.WatchForProbeFailure(timelimits.Reconnect)),
		source.Channel(t.events, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
			if t.of == nil {
				return nil
			}
			return t.of(ctx, client.ObjectKeyFromObject(o))
		})),
	}
}

// sources combines several sources.
type sources []source.Source

// Start implements source.Source.
func (s sources) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	for _, one := range s {
		if err := one.Start(ctx, queue); err != nil {
			return err
		}
	}
	return nil
}

// Notify implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) Notify(w clustercache.SourceWatcher[ctrl.Request], of func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request) {
	t.watcher, t.of = w, of
}

// Observe implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) Observe(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) facts.Cluster {
	p := t.probes.Of(cluster)
	now := p.Last()
	observed, pods, err := t.readCached(ctx, cluster)
	observed.Endpoint, observed.Alive = now.EndpointFacts(), now.Answers
	p.SetMembers(apiServers(machines, observed.Nodes), slices.ContainsFunc(machines, func(m *clusterv1.Machine) bool {
		return !m.DeletionTimestamp.IsZero() || facts.NodeOf(m, observed.Nodes) == nil
	}))
	read := reading{err: err}
	t.withState(cluster, func(m *clusterState) { read.failingSince = m.unreadableSince })
	state := reach(now, read, time.Now())
	switch {
	case state.answers:
	case !now.Known:
		observed.Answers, observed.Pending, observed.Again = false, state.unknown, timelimits.CallTimeout
		observed.Problem = "The API server does not answer"
		return observed
	case !now.Answers:
		observed.UnreachableSince = state.unreachableSince
		t.unreachable(ctx, cluster, machines, &observed, now.Problem)
		return observed
	default:
		t.unreadable(cluster, &observed, err)
		observed.Pending = state.unknown
		return observed
	}
	t.withState(cluster, func(m *clusterState) { m.unreadableSince, m.nodes = time.Time{}, slices.Clone(observed.Nodes) })
	if !observed.ExternalEtcd {
		going := anyDeletingWithoutNode(machines, observed.Nodes)
		fresh := timelimits.Fresh
		if going {
			fresh = timelimits.ShortPoll
		}
		answer := t.queryEtcd(ctx, cluster, facts.Fingerprint(machines, observed.Nodes, pods), targets(machines, observed.Nodes, true), fresh, timelimits.ReadTimeout)
		observed.Etcd, observed.EtcdProblem = answer.health, answer.problem
		if observed.KubeadmConfig && (going || !etcdHealthy(answer.health, observed.Nodes)) {
			observed.Again = timelimits.LongPoll
		}
	}
	t.expiries(cluster, observed.Nodes)
	t.remember(cluster, &observed)
	return observed
}

// Fresh implements the WorkloadClusters of controllers/controlplane.
func (t *Clusters) Fresh(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) facts.Cluster {
	ctx, cancel := context.WithTimeout(ctx, timelimits.StaleAfter)
	defer cancel()
	now := t.probes.Of(cluster).Last()
	c, err := t.clusters.GetUncachedClient(ctx, cluster)
	var observed facts.Cluster
	if err == nil {
		observed, _, err = facts.Read(ctx, c)
	}
	observed.Endpoint, observed.Alive = now.EndpointFacts(), err == nil || now.Answers
	if err != nil {
		observed.Answers, observed.Problem, observed.Again = false, problemOf(err), time.Second
		t.withState(cluster, func(m *clusterState) {
			state := reach(now, reading{err: err, uncached: true, failingSince: m.unreadableSince}, time.Now())
			observed.Pending, observed.UnreachableSince = state.unknown, state.unreachableSince
			observed.Nodes = slices.Clone(m.nodes)
		})
		return observed
	}
	addresses := apiServers(machines, observed.Nodes)
	observed.Serving, observed.Failing = probe.APIServers(ctx, t.probes.Of(cluster).RestConfig(), addresses)
	if found := observed.Serving.Len(); found > 0 && found < len(addresses) {
		// No event follows when the others answer again.
		observed.Again = timelimits.LongPoll
	}
	if !observed.ExternalEtcd {
		answer := t.observeEtcd(ctx, cluster, targets(machines, observed.Nodes, true))
		observed.Etcd, observed.EtcdProblem = answer.health, answer.problem
		if anyDeletingWithoutNode(machines, observed.Nodes) || !etcdHealthy(answer.health, observed.Nodes) {
			observed.Again = timelimits.LongPoll
		}
	}
	t.remember(cluster, &observed)
	return observed
}

// deletingWithoutNode reports whether a machine is being deleted and has no node. It may
// still become a member of etcd without an event: its kubelet gets no
// certificate any more.
func deletingWithoutNode(machine *clusterv1.Machine, nodes []facts.Node) bool {
	return !machine.DeletionTimestamp.IsZero() && facts.NodeOf(machine, nodes) == nil
}

// anyDeletingWithoutNode reports whether deletingWithoutNode is true for one of the machines.
func anyDeletingWithoutNode(machines []*clusterv1.Machine, nodes []facts.Node) bool {
	return slices.ContainsFunc(machines, func(m *clusterv1.Machine) bool { return deletingWithoutNode(m, nodes) })
}

// unreachable sets the facts of a workload cluster whose API server is unreachable:
// its members of etcd, if they can be reached at their own addresses.
func (t *Clusters) unreachable(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine, observed *facts.Cluster, why string) {
	observed.Answers, observed.Problem, observed.Again = false, why, timelimits.LongPoll
	t.withState(cluster, func(m *clusterState) {
		m.unreadableSince = time.Time{}
		observed.Nodes = slices.Clone(m.nodes)
	})
	// The outage is reported at once; the state of etcd follows a little later.
	answer := t.queryEtcd(ctx, cluster, "unreachable", targets(machines, observed.Nodes, false), timelimits.Fresh, 0)
	observed.Etcd, observed.EtcdProblem = answer.health, answer.problem
	t.remember(cluster, observed)
}

// unreadable sets why the cluster cache of a workload cluster that answers
// cannot be read. For a short time the conditions do not report it: the cluster
// cache reconnects after the kubeconfig was renewed.
func (t *Clusters) unreadable(cluster client.ObjectKey, observed *facts.Cluster, err error) {
	*observed = facts.Cluster{Endpoint: observed.Endpoint, Alive: observed.Alive, Problem: problemOf(err), Again: time.Second}
	t.withState(cluster, func(m *clusterState) {
		if m.unreadableSince.IsZero() {
			m.unreadableSince = time.Now()
		}
		m.etcd = etcdAnswer{}
	})
}

// remember adds facts of earlier reads that do not change.
func (t *Clusters) remember(cluster client.ObjectKey, observed *facts.Cluster) {
	t.withState(cluster, func(m *clusterState) {
		for i := range observed.Nodes {
			observed.Nodes[i].CertificatesExpire = m.expiries[observed.Nodes[i].Name].expires
		}
		if observed.Etcd == nil {
			return
		}
		observed.MemberSince = map[uint64]time.Time{}
		now := time.Now()
		for _, member := range observed.Etcd.Members {
			if m.seen[member.ID].IsZero() {
				m.seen[member.ID] = now
			}
			observed.MemberSince[member.ID] = m.seen[member.ID]
		}
		maps.DeleteFunc(m.seen, func(id uint64, _ time.Time) bool { return observed.MemberSince[id].IsZero() })
	})
}

// readCached reads from the cluster cache and watches it for changes.
func (t *Clusters) readCached(ctx context.Context, cluster client.ObjectKey) (facts.Cluster, []corev1.Pod, error) {
	// A cache that cannot sync blocks indefinitely.
	ctx, cancel := context.WithTimeout(ctx, timelimits.ReadTimeout)
	defer cancel()
	c, err := t.clusters.GetClient(ctx, cluster)
	if err != nil {
		return facts.Cluster{}, nil, err
	}
	if err := t.watch(ctx, cluster); err != nil {
		return facts.Cluster{}, nil, err
	}
	return facts.Read(ctx, c)
}

// watch adds the watches for changes. The cluster cache adds a watch only once
// per connection.
func (t *Clusters) watch(ctx context.Context, cluster client.ObjectKey) error {
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
			Name: w.name, Watcher: t.watcher, Kind: w.object, EventHandler: h, Predicates: []predicate.Predicate{facts.Changed()},
		}))
		if err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	return nil
}

// problemOf returns why a workload cluster does not answer, as a stable message.
func problemOf(err error) string {
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return "The API server does not answer"
	}
	if strings.Contains(err.Error(), "context deadline exceeded") {
		return "The API server answers too slowly"
	}
	// The text of an error may be controlled by the API server.
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return "The API server could not be read: HTTP status " + http.StatusText(int(status.Status().Code))
	}
	if refused, ok := errors.AsType[*workload.RefusedError](err); ok {
		return "The API server could not be read: " + refused.Error()
	}
	return "The API server could not be read"
}
