package controlplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
)

const (
	// pulsePeriod and pulseTimeout bound how long a lost quorum stays unseen:
	// two tries fail before a tenant counts as silent, so three times 2 s make
	// little more than 6 s. Cluster API's cluster cache needs 50 s.
	pulsePeriod  = 2 * time.Second
	pulseTimeout = 2 * time.Second
	// calmShare is by how much the time since the last change is divided for the
	// period while nothing changes.
	calmShare = 10
	// pulseFailures is how many tries fail before a tenant counts as silent.
	pulseFailures = 2
	// pulseRetry is the pause after a try that failed.
	pulseRetry = 250 * time.Millisecond
	// pulseAside bounds the questions that only say more about a failure.
	pulseAside = time.Second

	// leaselessAfter is how often an API server has to have no leases before it
	// is not asked for one any more.
	leaselessAfter = 3

	kubeVIPLease = "plndr-cp-lock"
)

// beat is what the last tries told of a tenant.
type beat struct {
	// known is true once enough tries were made to say anything.
	known bool
	// answers is true if the API server reads from etcd, which takes a quorum.
	answers bool
	// since is when that became so.
	since time.Time
	// endpoint is true if an API server answers at the endpoint, with or
	// without etcd.
	endpoint bool
	// problem is what is wrong, for people. It holds nothing that changes from
	// try to try.
	problem string
	// holder is the node that kube-vip says holds the endpoint's address.
	holder string
	// settled is true once that node has held it for so long that the one
	// before it has let go.
	settled bool
	// unheard is true if that node has held it for long and did not say so.
	unheard bool
	// before is the node that held it before.
	before string
}

// facts are what it tells of the endpoint.
func (b beat) facts() Endpoint {
	e := Endpoint{Asked: b.known, Answers: b.endpoint, Holder: b.holder, Settled: b.settled, Unheard: b.unheard, Before: b.before}
	if !b.endpoint {
		e.Silence = b.problem
	}
	return e
}

// pulse asks one tenant again and again whether it answers. It has a
// connection and a goroutine of its own, so a tenant that hangs keeps nobody
// else waiting.
type pulse struct {
	cluster, secret client.ObjectKey
	// clusters reads the Cluster, and secrets reads the kubeconfig.
	clusters, secrets client.Reader
	// user is the manager's own in the tenant. Without it the kubeconfig's is used.
	user *workload.User
	// changed is told when beat has changed.
	changed func()
	// period and timeout are pulsePeriod and pulseTimeout but in tests, and
	// longest is the period while nothing changes.
	period, timeout, longest time.Duration
	// wake ends the pause before the next try.
	wake chan struct{}

	mu       sync.Mutex
	beat     beat
	failures int
	// busy is true while machines of the control plane come or go, and changedAt is
	// the time of the last change of it or of beat.
	changedAt time.Time
	busy      bool
	// holding is what was seen of the holder.
	holding holding
	// members are the addresses of the API servers themselves.
	members map[string]string
	config  *rest.Config
}

// holding is what was seen of who holds the address.
type holding struct {
	holder string
	// since is when that was first seen, by our clock.
	since time.Time
	// renewed is the lease's word at that time.
	renewed time.Time
	// heard is true once the holder has renewed the lease since.
	heard bool
	// before is the last one before it that may have had the address.
	before string
}

// next is what is seen of another holder. One that never was heard of had
// nothing to let go of.
func (h holding) next(holder string, renewed, now time.Time) holding {
	next := holding{holder: holder, since: now, renewed: renewed, before: h.holder}
	if !h.heard && h.before != "" {
		next.before = h.before
	}
	return next
}

const (
	// handsOver is how long kube-vip takes to hand the address over when the
	// lease is given to another node: that one looks within 2.2 s, and the one
	// before it lets go 3 s after it could not renew.
	handsOver = 5 * time.Second
	// handsOverBound is when a node does not seem to take it.
	handsOverBound = 15 * time.Second
)

// settle takes what the lease says into b: who holds the address, and whether
// that one has really taken it and the one before it has let go.
func (p *pulse) settle(b *beat, holder string, renewed, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holding.holder != holder || p.holding.since.IsZero() {
		p.holding = p.holding.next(holder, renewed, now)
	}
	p.holding.heard = p.holding.heard || !renewed.Equal(p.holding.renewed)
	held := now.Sub(p.holding.since)
	b.holder, b.before = holder, p.holding.before
	b.settled = p.holding.heard && held >= handsOver
	b.unheard = !p.holding.heard && held >= handsOverBound
}

// moved notes at once that the lease was given to another node, and tells.
// What the lease says of its renewal then is our word, not that node's.
func (p *pulse) moved(to string, renewed, now time.Time) {
	p.mu.Lock()
	if p.holding.holder != to {
		p.holding = p.holding.next(to, renewed, now)
	}
	p.beat.holder, p.beat.before, p.beat.settled, p.beat.unheard = to, p.holding.before, false, false
	p.changedAt = now
	p.mu.Unlock()
	p.hurry()
	p.changed()
}

// hurry ends the pause before the next try.
func (p *pulse) hurry() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// pause returns the time before the next try. It grows with the time since the
// last change, calm, while nothing has to be noticed soon.
func pause(last beat, busy bool, calm, shortest, longest time.Duration) time.Duration {
	shortest = min(shortest, longest)
	if !last.known || !last.answers || busy || last.holder != "" && !last.settled {
		return shortest
	}
	return max(shortest, min(calm/calmShare, longest))
}

func newPulse(cluster client.ObjectKey, clusters, secrets client.Reader, changed func()) *pulse {
	return &pulse{
		cluster: cluster, clusters: clusters,
		secret:  client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)},
		secrets: secrets, changed: changed, period: pulsePeriod, timeout: pulseTimeout, longest: pulsePeriod,
		wake: make(chan struct{}, 1),
	}
}

// last returns what the last tries told.
func (p *pulse) last() beat {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.beat
}

// restConfig returns what the tenant is reached with now, or nil. It is never
// older than the last try: a renewed kubeconfig counts at once.
func (p *pulse) restConfig() *rest.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config == nil {
		return nil
	}
	return rest.CopyConfig(p.config)
}

// tell sets the addresses of the API servers themselves, by machine, and whether
// machines of the control plane come or go.
func (p *pulse) tell(members map[string]string, busy bool) {
	p.mu.Lock()
	began := busy && !p.busy
	if busy != p.busy {
		p.changedAt = time.Now()
	}
	p.members, p.busy = members, busy
	p.mu.Unlock()
	if began {
		p.hurry()
	}
}

// wait returns the time before the next try, after one that went well.
func (p *pulse) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pause(p.beat, p.busy, time.Since(p.changedAt), p.period, p.longest)
}

// run asks until ctx is done or there is no kubeconfig any more, or no Cluster:
// a kubeconfig that a user made outlives it.
func (p *pulse) run(ctx context.Context) {
	var connection *connection
	defer func() { connection.close() }()
	for {
		next, err := p.connect(ctx, connection)
		switch {
		case apierrors.IsNotFound(err):
			return
		case errors.Is(err, errUnusable):
			// A kubeconfig that was replaced by one that is refused is not used
			// any more either.
			connection.close()
			connection = nil
			p.note(beat{problem: "Secret " + p.secret.Name + " cannot be used: " + unusable(err)})
		case err != nil:
			// The management cluster is away: what was last read goes on.
		case next != nil:
			connection.close()
			connection = next
		}
		wait := p.period
		if connection != nil {
			if p.note(p.try(ctx, connection)) {
				wait = p.wait()
			} else {
				wait = min(pulseRetry, p.period)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-time.After(wait):
		}
	}
}

// errUnusable says that what is in the Secret is no kubeconfig to connect with.
var errUnusable = errors.New("the kubeconfig cannot be used")

// connect returns a new connection if the kubeconfig is another than that of the
// last one, or if that needs a new certificate.
func (p *pulse) connect(ctx context.Context, last *connection) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := p.clusters.Get(ctx, p.cluster, &clusterv1.Cluster{}); err != nil {
		return nil, err
	}
	s := &corev1.Secret{}
	if err := p.secrets.Get(ctx, p.secret, s); err != nil {
		return nil, err
	}
	raw := string(s.Data[secret.KubeconfigDataName])
	if last != nil && raw == last.kubeconfig && (last.renew.IsZero() || time.Now().Before(last.renew)) {
		return nil, nil //nolint:nilnil // the last one stays
	}
	config, renew, err := p.user.RESTConfig(ctx, p.cluster, []byte(raw))
	if _, refused := errors.AsType[*workload.RefusedError](err); err != nil && !refused {
		return nil, err // the CA cannot be read for now
	}
	var c *connection
	if err == nil {
		c, err = newConnection(config)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.config = nil
		return nil, errors.Join(errUnusable, err)
	}
	c.kubeconfig, c.renew = raw, renew
	p.config = config
	return c, nil
}

// unusable returns the reason for not using a kubeconfig.
func unusable(err error) string {
	if refused, ok := errors.AsType[*workload.RefusedError](err); ok {
		return refused.Error()
	}
	return "its certificates or credentials cannot be read"
}

// note takes the result of a try, and reports whether it went well.
func (p *pulse) note(now beat) bool {
	p.mu.Lock()
	was := p.beat
	if now.answers {
		p.failures = 0
	} else {
		p.failures++
		if p.failures < pulseFailures {
			p.mu.Unlock()
			return false
		}
	}
	now.known, now.since = true, was.since
	if !was.known || was.answers != now.answers {
		now.since = time.Now()
	}
	if !now.answers {
		now.holder, now.settled, now.unheard, now.before = was.holder, was.settled, was.unheard, was.before
	}
	p.beat = now
	if now != was {
		p.changedAt = time.Now()
	}
	p.mu.Unlock()
	if now != was {
		p.changed()
	}
	// A tenant that is known to be silent is not asked more often than others.
	return true
}

// try asks once. Reading one object is answered from etcd and needs its quorum.
// The object is the one by which kube-vip agrees who holds the address.
func (p *pulse) try(ctx context.Context, c *connection) beat {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if c.leaseless {
		return p.tryPlain(ctx, c)
	}
	lease := &coordinationv1.Lease{}
	err := c.client.Get().AbsPath("/apis/coordination.k8s.io/v1/namespaces/" + metav1.NamespaceSystem + "/leases/" + kubeVIPLease).
		Do(ctx).Into(lease)
	switch {
	case err == nil:
		c.without = 0
		now := beat{answers: true, endpoint: true}
		if holder, renewed := lease.Spec.HolderIdentity, lease.Spec.RenewTime; holder != nil && renewed != nil {
			p.settle(&now, *holder, renewed.Time, time.Now())
		}
		return now
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return beat{answers: true, endpoint: true}
	case apierrors.IsInternalError(err):
		// Pretended API servers, as those of Cluster API's in-memory
		// infrastructure, have no leases. One that has lost etcd fails here too.
		if now := p.tryPlain(ctx, c); now.answers {
			// One that only stumbled has leases all the same.
			c.without++
			c.leaseless = c.without >= leaselessAfter
			return now
		}
	}
	return p.failed(ctx, c, err)
}

// tryPlain reads an object that every API server has.
func (p *pulse) tryPlain(ctx context.Context, c *connection) beat {
	err := c.client.Get().AbsPath("/api/v1/namespaces/" + metav1.NamespaceSystem).Do(ctx).Error()
	if err == nil || apierrors.IsForbidden(err) {
		return beat{answers: true, endpoint: true}
	}
	if !c.leaseless {
		return beat{}
	}
	return p.failed(ctx, c, err)
}

// failed is what is known after a question that was not answered.
func (p *pulse) failed(ctx context.Context, c *connection, err error) beat {
	if apierrors.IsUnauthorized(err) {
		return beat{endpoint: true, problem: "The API server refuses the certificate of Secret " + p.secret.Name}
	}
	p.mu.Lock()
	last := p.failures+1 >= pulseFailures
	members := p.members
	p.mu.Unlock()
	if !last {
		return beat{}
	}
	return p.diagnose(context.WithoutCancel(ctx), c, err, members)
}

// diagnose finds out whether an API server answers at all.
func (p *pulse) diagnose(ctx context.Context, c *connection, err error, members map[string]string) beat {
	ctrl.LoggerFrom(ctx).V(2).Info("API server does not answer", "Cluster", p.cluster.String(), "error", err.Error())
	ctx, cancel := context.WithTimeout(ctx, pulseAside)
	defer cancel()
	aside := make(chan []string, 1)
	go func() { aside <- c.alive(ctx, members) }()
	pings := c.client.Get().AbsPath("/livez/ping").Do(ctx).Error() == nil
	alive := <-aside
	if pings {
		return beat{endpoint: true, problem: "The API server answers, but cannot read from etcd: its quorum may be lost"}
	}
	now := beat{problem: fmt.Sprintf("No API server answers at the endpoint %s: %s", c.host, plainly(err))}
	if len(alive) > 0 {
		now.problem += fmt.Sprintf(". At its own address an API server answers on %s: "+
			"the address of the endpoint has no holder, or it is not reachable from here", strings.Join(alive, ", "))
	}
	return now
}

// connection is an HTTP connection to one API server. It speaks HTTP/1.1: a
// question that runs out of time then closes its connection, and the next one
// goes to whoever holds the address now.
type connection struct {
	host string
	// kubeconfig is the source of the connection. From renew on the connection
	// needs a new certificate, never if that is zero.
	kubeconfig string
	renew      time.Time
	tls        *tls.Config
	client     *rest.RESTClient
	transport  *http.Transport
	// leaseless is set once the API server turned out to have no leases, and
	// without counts the times that it had none.
	leaseless bool
	without   int
}

func newConnection(config *rest.Config) (*connection, error) {
	host, err := url.Parse(config.Host)
	if err != nil {
		return nil, errors.New("the kubeconfig's server is no URL")
	}
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig's certificates: %w", err)
	}
	// Not the shared transports of client-go, which live as long as the process.
	transport := &http.Transport{
		TLSClientConfig: settings, Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: pulseTimeout, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: pulseTimeout, KeepAlive: pulsePeriod, Control: endpoints.ControlFor(host)}).DialContext,
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig's credentials: %w", err)
	}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	return &connection{host: host.Host, tls: settings, client: client, transport: transport}, nil
}

func (c *connection) close() {
	if c != nil {
		c.transport.CloseIdleConnections()
	}
}

// alive returns the machines whose API server answers at its own address.
func (c *connection) alive(ctx context.Context, members map[string]string) []string {
	var mu sync.Mutex
	var found []string
	var group sync.WaitGroup
	for name, address := range members {
		group.Go(func() {
			dialer := &tls.Dialer{NetDialer: &net.Dialer{Control: endpoints.Control}, Config: c.trusting()}
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return
			}
			_ = conn.Close()
			mu.Lock()
			defer mu.Unlock()
			found = append(found, name)
		})
	}
	group.Wait()
	slices.Sort(found)
	return found
}

// trusting is the connection's TLS configuration for another address of the
// same API server: its certificate names the endpoint too.
func (c *connection) trusting() *tls.Config {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.tls != nil {
		settings = c.tls.Clone()
	}
	if settings.ServerName == "" {
		host, _, err := net.SplitHostPort(c.host)
		if err != nil {
			host = c.host
		}
		settings.ServerName = host
	}
	return settings
}

// plainly returns a coarse reason for a failed connection, in words that stay the
// same from try to try. A tenant may choose the endpoint and can read the
// condition, so a finer reason would let the tenant scan the network of the
// management cluster. The log has the error.
func plainly(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return "it answers with an error"
	}
	return "it cannot be reached, or its certificate is not the cluster's"
}

// pulses are those of all tenants.
type pulses struct {
	// start runs something in the background until the process ends.
	start func(run func(ctx context.Context))
	// clusters reads Clusters from a cache, and secrets reads kubeconfigs.
	clusters, secrets client.Reader
	user              *workload.User
	// longest is the period while nothing changes.
	longest time.Duration
	changed func(client.ObjectKey)
	// ended is told when there is no Cluster or no kubeconfig any more.
	ended func(client.ObjectKey)
	// answered, if set, is called when the state of a cluster that answers has
	// changed.
	answered func(client.ObjectKey)

	mu sync.Mutex
	by map[client.ObjectKey]*pulse
}

// of returns a tenant's pulse and starts it if there is none.
func (s *pulses) of(cluster client.ObjectKey) *pulse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.by[cluster]; p != nil {
		return p
	}
	p := newPulse(cluster, s.clusters, s.secrets, nil)
	p.user, p.longest = s.user, cmp.Or(s.longest, pulsePeriod)
	p.changed = func() {
		if s.answered != nil && p.last().answers {
			s.answered(cluster)
		}
		s.changed(cluster)
	}
	if s.by == nil {
		s.by = map[client.ObjectKey]*pulse{}
	}
	s.by[cluster] = p
	s.start(func(ctx context.Context) {
		p.run(ctx)
		s.ended(cluster)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.by, cluster)
	})
	return p
}
