package zvirt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/internal/ovirt"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/plan"
)

// Options are what holds for all engines.
type Options struct {
	// MaxCreations bounds the VMs being made at one engine. Zero means any
	// number.
	MaxCreations int
	// Namespace is the manager's own: it holds the Secrets that cluster-scoped
	// identities name.
	Namespace string

	// Fence tells which clusters another management cluster acts for.
	Fence fence.Fence

	// pace is for tests.
	pace engine.Pace
}

// Connector shares sessions with engines between machines and clusters.
type Connector struct {
	reader   client.Reader
	accounts *credentials.Resolver
	options  Options
	pool     *sessions.Pool[*engine.Session]
	logins   *sessions.LoginLimiter
}

var (
	_ hypervisor.Connector[*infrav1.NovaZVirtMachine]     = &Connector{}
	_ hypervisor.Inspector[*infrav1.NovaZVirtCluster]     = &Connector{}
	_ hypervisor.Sizer[*infrav1.NovaZVirtMachineTemplate] = &Connector{}
)

// NewConnector returns a Connector without sessions. The reader reads Clusters,
// NovaZVirtClusters, and past any cache the Secrets and identities they name.
func NewConnector(reader client.Reader, o Options) *Connector {
	if o.pace == (engine.Pace{}) {
		o.pace = engine.Usually
	}
	return &Connector{
		reader: reader,
		accounts: &credentials.Resolver{
			Reader: reader, Namespace: o.Namespace, Kind: infrav1.NovaZVirtIdentityKind,
			NewIdentity: func() credentials.Identity { return &infrav1.NovaZVirtIdentity{} },
		},
		options: o,
		pool:    sessions.NewPool[*engine.Session](o.MaxCreations),
		logins:  sessions.NewLoginLimiter(o.pace.Session.MinLoginRetry),
	}
}

// Start closes sessions that nobody asks for any more, and at the end all, so
// that a manager can run the Connector.
func (c *Connector) Start(ctx context.Context) error {
	c.pool.Run(ctx)
	return nil
}

// Close gives all tokens back.
func (c *Connector) Close() { c.pool.Close() }

// Connect returns a driver for m. It waits no longer than a moment for a
// session that is being opened, and not at all for one that is known to be
// down.
func (c *Connector) Connect(ctx context.Context, m *infrav1.NovaZVirtMachine) (hypervisor.Driver[*infrav1.NovaZVirtMachine], error) {
	cluster, err := c.clusterOf(ctx, m.Namespace, m.Labels[clusterv1.ClusterNameLabel])
	if err != nil {
		return nil, err
	}
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx, keyOf(m)); err != nil {
		return nil, err
	}
	if acts, err := c.acts(ctx, cluster); err != nil {
		return nil, err
	} else if acts {
		s.Act(cluster.Annotations[infrav1.ClusterIDAnnotation])
	}
	endpoint, err := c.endpointOf(ctx, cluster)
	return &driver{session: s, cluster: cluster, bounds: bounds, endpoint: endpoint}, err
}

// acts reports whether this management cluster acts for a cluster.
func (c *Connector) acts(ctx context.Context, infra *infrav1.NovaZVirtCluster) (bool, error) {
	cluster := &clusterv1.Cluster{}
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: infra.Namespace, Name: infra.Labels[clusterv1.ClusterNameLabel]}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		cluster = nil
	case err != nil:
		return false, fmt.Errorf("reading Cluster: %w", err)
	}
	return c.options.Fence.Check(cluster, infra) == nil, nil
}

// Changes delivers the machines whose VM changed.
func (c *Connector) Changes() <-chan hypervisor.Key { return c.pool.Machines.Keys() }

// EndpointChanges delivers the keys of clusters whose engine became reachable or
// unreachable.
func (c *Connector) EndpointChanges() <-chan hypervisor.Key { return c.pool.Clusters.Keys() }

// errNoCluster is returned for a Cluster whose infrastructure is not there, or
// not labelled yet.
var errNoCluster = errors.New("no NovaZVirtCluster has the label")

// clusterOf finds the infrastructure cluster of a Cluster, which may be gone.
func (c *Connector) clusterOf(ctx context.Context, namespace, name string) (*infrav1.NovaZVirtCluster, error) {
	if name == "" {
		return nil, fmt.Errorf("finding the machine's cluster: the label %s is missing", clusterv1.ClusterNameLabel)
	}
	list := &infrav1.NovaZVirtClusterList{}
	err := c.reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name})
	if err != nil {
		return nil, fmt.Errorf("finding the machine's cluster: %w", err)
	}
	switch len(list.Items) {
	case 0:
		return nil, fmt.Errorf("finding the machine's cluster: %w %s=%s", errNoCluster, clusterv1.ClusterNameLabel, name)
	case 1:
		return &list.Items[0], nil
	default:
		return nil, fmt.Errorf("finding the machine's cluster: %d NovaZVirtClusters have the label %s=%s, not one",
			len(list.Items), clusterv1.ClusterNameLabel, name)
	}
}

// endpointOf returns the address of the tenant's API server, which floats
// between machines; none, if nobody has named it.
func (c *Connector) endpointOf(ctx context.Context, infra *infrav1.NovaZVirtCluster) (string, error) {
	if host := infra.Spec.ControlPlaneEndpoint.Host; host != "" {
		return host, nil
	}
	cluster := &clusterv1.Cluster{}
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: infra.Namespace, Name: infra.Labels[clusterv1.ClusterNameLabel]}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Cluster: %w", err)
	}
	return cluster.Spec.ControlPlaneEndpoint.Host, nil
}

// open returns the session that cluster asks for, and the bounds that its
// identity sets.
func (c *Connector) open(ctx context.Context, cluster *infrav1.NovaZVirtCluster) (*engine.Session, engine.Bounds, error) {
	spec, ref := &cluster.Spec, cluster.Identity()
	login, err := c.accounts.Resolve(ctx, cluster.Namespace, credentials.Reference{
		Kind: ref.Kind, Name: ref.Name, Server: spec.Server, TLS: spec.TLS,
	})
	if err != nil {
		return nil, engine.Bounds{}, err
	}
	bounds := engine.Bounds{}
	if identity, ok := login.Identity.(*infrav1.NovaZVirtIdentity); ok {
		bounds = engine.Bounds{By: identity.Name, NovaZVirtBounds: identity.Spec.Bounds}
	}
	e := ovirt.Endpoint{
		Server: login.Server, Username: login.Username, Password: login.Password,
		Trust: endpoints.Trust(login.TLS),
	}
	user := sessions.User{Server: e.Server, Name: e.Username, Identity: login.Identity != nil}
	if identity, ok := login.Identity.(*infrav1.NovaZVirtIdentity); ok {
		e.Filter = ptr.Deref(identity.Spec.Filter, false)
	}
	e.Guard = func(ctx context.Context, login func() error) error {
		err := c.logins.Do(ctx, user, e.Password, login, func(err error) bool { return ovirt.IsStatus(err, http.StatusUnauthorized) })
		if errors.Is(err, sessions.ErrTooManyRejectedLogins) {
			return plan.Failure(infrav1.CredentialsInvalidReason, "oVirt engine %s: %w", e.Server, err)
		}
		return err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q", []string{
		e.Server, e.Username, e.Password, e.Trust.CABundle, e.Trust.Thumbprint,
		strconv.FormatBool(user.Identity), strconv.FormatBool(e.Filter),
	})
	id := string(h.Sum(nil))
	s, err := c.pool.Open(id, e.Server, hypervisor.Key{Namespace: cluster.Namespace, Name: cluster.Name}, func(t *sessions.CreationQueue) (*engine.Session, error) {
		return engine.Open(e, c.options.pace, t, c.pool.Machines.Add, func() { c.pool.RequeueClusters(id) })
	})
	return s, bounds, err
}

// clusterNameOf returns the Cluster that a template belongs to: the one of its
// label, or the one that Cluster API made its owner.
func clusterNameOf(t *infrav1.NovaZVirtMachineTemplate) string {
	if name := t.Labels[clusterv1.ClusterNameLabel]; name != "" {
		return name
	}
	for _, owner := range t.OwnerReferences {
		if owner.Kind == clusterv1.ClusterKind {
			return owner.Name
		}
	}
	return ""
}
