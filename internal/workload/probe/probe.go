package probe

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
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// idleDivisor divides the time since the last change to get the period while
	// nothing changes.
	idleDivisor = 10
	// failedProbes is the number of failed probes before a workload cluster
	// counts as unreachable.
	failedProbes = 2
	// retryDivisor divides the period to get the pause after a failed probe.
	retryDivisor = 8

	// noLeasesAfter is the number of responses without leases after which the
	// lease is not requested any more.
	noLeasesAfter = 3

	// KubeVIPLease is the lease of the node that holds the address of the endpoint.
	KubeVIPLease = "plndr-cp-lock"
)

// Result is the result of the last probes of a workload cluster.
type Result struct {
	// Known is true once enough probes completed for a result.
	Known bool
	// Answers is true if the API server reads from etcd, which requires a
	// quorum.
	Answers bool
	// Since is when answers changed.
	Since time.Time
	// endpoint is true if an API server answers at the endpoint, with or
	// without etcd.
	endpoint bool
	// Problem is the reason of a failure, for users. It is the same for each
	// probe.
	Problem string
	// holder is the node that holds the endpoint's address by kube-vip's lease.
	holder string
	// confirmed is true once that node has held it for so long that the node
	// before it has released it.
	confirmed bool
	// unconfirmed is true if that node has held the lease for long and has not
	// renewed it.
	unconfirmed bool
	// before is the previous holder.
	before string
}

// EndpointFacts returns the observed state of the endpoint.
func (b Result) EndpointFacts() facts.Endpoint {
	e := facts.Endpoint{Probed: b.Known, Answers: b.endpoint, Holder: b.holder, Confirmed: b.confirmed, Unconfirmed: b.unconfirmed, Before: b.before}
	if !b.endpoint {
		e.Problem = b.Problem
	}
	return e
}

// Probe probes one workload cluster periodically. It has its own connection and
// goroutine, so a cluster that hangs does not delay others.
type Probe struct {
	cluster, secret client.ObjectKey
	// Clusters reads the Cluster, and secrets reads the kubeconfig.
	clusters, secrets client.Reader
	// User is the manager's own user in the workload cluster. Without it the
	// credentials of the kubeconfig are used.
	user *workload.User
	// Changed is called when the result has changed.
	changed func()
	// period and timeout are ShortPoll and ReadTimeout except in tests, and
	// Longest is the period while nothing changes.
	period, timeout, longest time.Duration
	// wake ends the pause before the next try.
	wake chan struct{}

	mu       sync.Mutex
	result   Result
	failures int
	// busy is true while machines of the control plane are created or deleted,
	// and changedAt is the time of the last change of busy or result.
	changedAt time.Time
	busy      bool
	// holder is the observed holder.
	holder holderState
	// members are the API servers' own addresses.
	members map[string]string
	config  *rest.Config
}

// holderState is an observed holder of the address.
type holderState struct {
	holder string
	// Since is when it was first observed, by the clock of this process.
	since time.Time
	// renewed is the lease's renewTime at that time.
	renewed time.Time
	// hasRenewed is true once the holder has renewed the lease since.
	hasRenewed bool
	// before is the last holder before it that may have had the address.
	before string
}

// next returns the state for another holder. A holder that never renewed the
// lease had no address to release.
func (h holderState) next(holder string, renewed, now time.Time) holderState {
	next := holderState{holder: holder, since: now, renewed: renewed, before: h.holder}
	if !h.hasRenewed && h.before != "" {
		next.before = h.before
	}
	return next
}

// updateHolder updates b from the lease: the holder of the address, and whether it
// has taken the address and the previous one has released it.
func (p *Probe) updateHolder(b *Result, holder string, renewed, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holder.holder != holder || p.holder.since.IsZero() {
		p.holder = p.holder.next(holder, renewed, now)
	}
	p.holder.hasRenewed = p.holder.hasRenewed || !renewed.Equal(p.holder.renewed)
	held := now.Sub(p.holder.since)
	b.holder, b.before = holder, p.holder.before
	b.confirmed = p.holder.hasRenewed && held >= timelimits.KubeVIPHandover
	b.unconfirmed = !p.holder.hasRenewed && held >= timelimits.StaleAfter
}

// Moved immediately records that the lease was transferred to another node, and
// reports the change. The lease's renewTime is then this manager's and not that
// node's.
func (p *Probe) Moved(to string, renewed, now time.Time) {
	p.mu.Lock()
	if p.holder.holder != to {
		p.holder = p.holder.next(to, renewed, now)
	}
	p.result.holder, p.result.before, p.result.confirmed, p.result.unconfirmed = to, p.holder.before, false, false
	p.changedAt = now
	p.mu.Unlock()
	p.probeNow()
	p.changed()
}

// probeNow ends the pause before the next probe.
func (p *Probe) probeNow() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// pause returns the time before the next probe. It grows with calm, the time
// Since the last change, unless a change has to be detected soon.
func pause(last Result, busy bool, calm, shortest, longest time.Duration) time.Duration {
	shortest = min(shortest, longest)
	if !last.Known || !last.Answers || busy || last.holder != "" && !last.confirmed {
		return shortest
	}
	return max(shortest, min(calm/idleDivisor, longest))
}

func newProbe(cluster client.ObjectKey, clusters, secrets client.Reader, changed func()) *Probe {
	return &Probe{
		cluster: cluster, clusters: clusters,
		secret:  client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)},
		secrets: secrets, changed: changed, period: timelimits.ShortPoll, timeout: timelimits.ReadTimeout, longest: timelimits.ShortPoll,
		wake: make(chan struct{}, 1),
	}
}

// Last returns the result of the last probes.
func (p *Probe) Last() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// RestConfig returns the current connection to the workload cluster, or nil. It
// is never older than the last probe: a renewed kubeconfig is used immediately.
func (p *Probe) RestConfig() *rest.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config == nil {
		return nil
	}
	return rest.CopyConfig(p.config)
}

// SetMembers sets the API servers' own addresses, by machine, and whether machines of
// the control plane are created or deleted.
func (p *Probe) SetMembers(members map[string]string, busy bool) {
	p.mu.Lock()
	began := busy && !p.busy
	if busy != p.busy {
		p.changedAt = time.Now()
	}
	p.members, p.busy = members, busy
	p.mu.Unlock()
	if began {
		p.probeNow()
	}
}

// wait returns the time before the next probe after a successful one.
func (p *Probe) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pause(p.result, p.busy, time.Since(p.changedAt), p.period, p.longest)
}

// run probes until ctx is done, or the kubeconfig or the Cluster does not exist
// any more: a kubeconfig that a user created outlives the Cluster.
func (p *Probe) run(ctx context.Context) {
	var connection *connection
	defer func() { connection.close() }()
	for {
		next, err := p.connect(ctx, connection)
		switch {
		case apierrors.IsNotFound(err):
			return
		case errors.Is(err, errUnusable):
			// The previous kubeconfig is not used any more if its replacement
			// is rejected.
			connection.close()
			connection = nil
			p.record(Result{Problem: "Secret " + p.secret.Name + " cannot be used: " + unusable(err)})
		case err != nil:
			// The management cluster is unreachable: the last read kubeconfig
			// stays in use.
		case next != nil:
			connection.close()
			connection = next
		}
		wait := p.period
		if connection != nil {
			if p.record(p.try(ctx, connection)) {
				wait = p.wait()
			} else {
				wait = p.period / retryDivisor
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

// errUnusable means that the Secret has no usable kubeconfig.
var errUnusable = errors.New("the kubeconfig cannot be used")

// connect returns a new connection if the kubeconfig has changed since the last
// one, or if it needs a new certificate.
func (p *Probe) connect(ctx context.Context, last *connection) (*connection, error) {
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
		return nil, nil //nolint:nilnil // nil keeps the last result
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

// unusable returns why a kubeconfig cannot be used.
func unusable(err error) string {
	if refused, ok := errors.AsType[*workload.RefusedError](err); ok {
		return refused.Error()
	}
	return "its certificates or credentials cannot be read"
}

// record records the result of a probe, and reports whether it succeeded.
func (p *Probe) record(now Result) bool {
	p.mu.Lock()
	was := p.result
	if now.Answers {
		p.failures = 0
	} else {
		p.failures++
		if p.failures < failedProbes {
			p.mu.Unlock()
			return false
		}
	}
	now.Known, now.Since = true, was.Since
	if !was.Known || was.Answers != now.Answers {
		now.Since = time.Now()
	}
	if !now.Answers {
		now.holder, now.confirmed, now.unconfirmed, now.before = was.holder, was.confirmed, was.unconfirmed, was.before
	}
	p.result = now
	if now != was {
		p.changedAt = time.Now()
	}
	p.mu.Unlock()
	if now != was {
		p.changed()
	}
	// A workload cluster that is known to be unreachable is not probed more
	// often than others.
	return true
}

// try sends one probe. A read of one object is served from etcd and requires
// its quorum. The object is kube-vip's lease, which names the holder of the
// address.
func (p *Probe) try(ctx context.Context, c *connection) Result {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if c.noLeases {
		return p.tryPlain(ctx, c)
	}
	lease := &coordinationv1.Lease{}
	err := c.client.Get().AbsPath("/apis/coordination.k8s.io/v1/namespaces/" + metav1.NamespaceSystem + "/leases/" + KubeVIPLease).
		Do(ctx).Into(lease)
	switch {
	case err == nil:
		c.without = 0
		now := Result{Answers: true, endpoint: true}
		if holder, renewed := lease.Spec.HolderIdentity, lease.Spec.RenewTime; holder != nil && renewed != nil {
			p.updateHolder(&now, *holder, renewed.Time, time.Now())
		}
		return now
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return Result{Answers: true, endpoint: true}
	case apierrors.IsInternalError(err):
		// Fake API servers, such as those of Cluster API's in-memory
		// infrastructure, have no leases. An API server that has lost etcd
		// fails here too.
		if now := p.tryPlain(ctx, c); now.Answers {
			// An API server that failed only once has leases nevertheless.
			c.without++
			c.noLeases = c.without >= noLeasesAfter
			return now
		}
	}
	return p.failed(ctx, c, err)
}

// tryPlain reads an object that every API server has.
func (p *Probe) tryPlain(ctx context.Context, c *connection) Result {
	err := c.client.Get().AbsPath("/api/v1/namespaces/" + metav1.NamespaceSystem).Do(ctx).Error()
	if err == nil || apierrors.IsForbidden(err) {
		return Result{Answers: true, endpoint: true}
	}
	if !c.noLeases {
		return Result{}
	}
	return p.failed(ctx, c, err)
}

// failed returns the result of a failed request.
func (p *Probe) failed(ctx context.Context, c *connection, err error) Result {
	if apierrors.IsUnauthorized(err) {
		return Result{endpoint: true, Problem: "The API server rejects the certificate of Secret " + p.secret.Name}
	}
	p.mu.Lock()
	last := p.failures+1 >= failedProbes
	members := p.members
	p.mu.Unlock()
	if !last {
		return Result{}
	}
	return p.diagnose(context.WithoutCancel(ctx), c, err, members)
}

// diagnose determines whether an API server answers at all.
func (p *Probe) diagnose(ctx context.Context, c *connection, err error, members map[string]string) Result {
	ctrl.LoggerFrom(ctx).V(2).Info("API server does not answer", "Cluster", p.cluster.String(), "error", err.Error())
	ctx, cancel := context.WithTimeout(ctx, timelimits.DirectTimeout)
	defer cancel()
	answers := make(chan []string, 1)
	go func() { answers <- c.alive(ctx, members) }()
	pings := c.client.Get().AbsPath("/livez/ping").Do(ctx).Error() == nil
	alive := <-answers
	if pings {
		return Result{endpoint: true, Problem: "The API server answers, but cannot read from etcd: its quorum may be lost"}
	}
	now := Result{Problem: fmt.Sprintf("No API server answers at the endpoint %s: %s", c.host, coarseReason(err))}
	if len(alive) > 0 {
		now.Problem += fmt.Sprintf(". At its own address an API server answers on %s: "+
			"the endpoint's address has no holder, or the management cluster cannot reach it", strings.Join(alive, ", "))
	}
	return now
}

// connection is an HTTP connection to one API server. It uses HTTP/1.1: a
// request that times out then closes its connection, and the next request
// connects to the current holder of the address.
type connection struct {
	host string
	// kubeconfig is the source of the connection. After renew the connection
	// needs a new certificate, never if renew is zero.
	kubeconfig string
	renew      time.Time
	tls        *tls.Config
	client     *rest.RESTClient
	transport  *http.Transport
	// noLeases is set once the API server turned out to have no leases, and
	// without counts the responses without leases.
	noLeases bool
	without  int
}

func newConnection(config *rest.Config) (*connection, error) {
	host, err := url.Parse(config.Host)
	if err != nil {
		return nil, errors.New("the kubeconfig's server is not a URL")
	}
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig's certificates: %w", err)
	}
	// The shared transports of client-go would live as long as the process.
	transport := &http.Transport{
		TLSClientConfig: settings, Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: timelimits.ReadTimeout, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: timelimits.ReadTimeout, KeepAlive: timelimits.ShortPoll, Control: endpoints.ControlFor(host)}).DialContext,
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
		return nil, fmt.Errorf("creating client: %w", err)
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
	found := make(chan string, len(members))
	var group sync.WaitGroup
	for name, address := range members {
		group.Go(func() {
			dialer := &tls.Dialer{NetDialer: &net.Dialer{Control: endpoints.Control}, Config: c.directTLS()}
			if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
				_ = conn.Close()
				found <- name
			}
		})
	}
	group.Wait()
	close(found)
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// directTLS returns the connection's TLS configuration for another address of
// the same API server: its certificate contains the endpoint too.
func (c *connection) directTLS() *tls.Config {
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

// coarseReason returns a coarse reason for a failed connection, as a stable message.
// A tenant may choose the endpoint and can read the condition, so a finer
// reason would allow the tenant to scan the network of the management cluster.
// The log has the error.
func coarseReason(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return "it answers with an error"
	}
	return "it cannot be reached, or its certificate is not the cluster's"
}

// Probes are the health probes of all workload clusters.
type Probes struct {
	// Start runs a function in the background until the process ends.
	Start func(run func(ctx context.Context))
	// Clusters reads Clusters from a cache, and secrets reads kubeconfigs.
	Clusters, Secrets client.Reader
	User              *workload.User
	// Longest is the period while nothing changes.
	Longest time.Duration
	Changed func(client.ObjectKey)
	// Ended is called when the Cluster or the kubeconfig does not exist any
	// more.
	Ended func(client.ObjectKey)
	// Answered, if set, is called when the state of a cluster that answers has
	// Changed.
	Answered func(client.ObjectKey)

	by reconcile.Memory[client.ObjectKey, *Probe]
}

// Of returns the health probe of a workload cluster, and starts it if
// necessary.
func (s *Probes) Of(cluster client.ObjectKey) *Probe {
	var found *Probe
	s.by.Update(cluster, func(p **Probe) {
		if *p == nil {
			*p = s.start(cluster)
		}
		found = *p
	})
	return found
}

func (s *Probes) start(cluster client.ObjectKey) *Probe {
	p := newProbe(cluster, s.Clusters, s.Secrets, nil)
	p.user, p.longest = s.User, cmp.Or(s.Longest, timelimits.ShortPoll)
	p.changed = func() {
		if s.Answered != nil && p.Last().Answers {
			s.Answered(cluster)
		}
		s.Changed(cluster)
	}
	s.Start(func(ctx context.Context) {
		p.run(ctx)
		s.Ended(cluster)
		s.by.Forget(cluster)
	})
	return p
}
