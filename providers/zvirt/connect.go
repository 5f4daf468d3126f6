package zvirt

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/engine"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt/ovirt"
)

// Options are the settings for all engines.
type Options struct {
	// MaxCreations is the maximum number of concurrent VM creations per engine.
	// If not set, the number is not limited.
	MaxCreations int
	// Namespace is the namespace of the manager. It contains the Secrets of
	// cluster-scoped identities.
	Namespace string

	// Fence reports the clusters that another management cluster manages.
	Fence fence.Fence

	// timeouts are set by tests only.
	timeouts engine.Timeouts
}

// Connector shares the sessions with engines between machines and clusters.
type Connector struct {
	*sessions.Pool[*engine.Session]

	reader   client.Reader
	resolver *credentials.Resolver
	options  Options
	logins   *sessions.LoginLimiter
}

var (
	_ hypervisor.Connector[*zvirtv1.NovaZVirtMachine]     = &Connector{}
	_ hypervisor.Inspector[*zvirtv1.NovaZVirtCluster]     = &Connector{}
	_ hypervisor.Sizer[*zvirtv1.NovaZVirtMachineTemplate] = &Connector{}
)

// NewConnector returns a Connector without sessions. The reader reads Clusters
// and NovaZVirtClusters, and, without a cache, the Secrets and identities that
// they reference.
func NewConnector(reader client.Reader, o Options) *Connector {
	if o.timeouts == (engine.Timeouts{}) {
		o.timeouts = engine.DefaultTimeouts
	}
	return &Connector{
		reader: reader,
		resolver: &credentials.Resolver{
			Reader: reader, Namespace: o.Namespace, Kind: zvirtv1.NovaZVirtIdentityKind,
			NewIdentity: func() credentials.Identity { return &zvirtv1.NovaZVirtIdentity{} },
		},
		options: o,
		Pool:    sessions.NewPool[*engine.Session](o.MaxCreations),
		logins:  sessions.NewLoginLimiter(o.timeouts.Session.MinLoginRetry),
	}
}

// Connect returns a driver for m. It waits only briefly for a session that is
// being opened, and does not wait for a session that is known to be down.
func (c *Connector) Connect(ctx context.Context, m *zvirtv1.NovaZVirtMachine) (hypervisor.Driver[*zvirtv1.NovaZVirtMachine], error) {
	cluster, err := c.findCluster(ctx, m)
	if err != nil {
		return nil, err
	}
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx, hypervisor.KeyOf(m)); err != nil {
		return nil, err
	}
	if active, err := c.isActive(ctx, cluster); err != nil {
		return nil, err
	} else if active {
		s.AllowGroupRemoval(cluster.Annotations[infrav1.ClusterIDAnnotation])
	}
	endpoint, err := kit.EndpointHost(ctx, c.reader, cluster, cluster.Spec.ControlPlaneEndpoint.Host)
	id, _ := s.EngineInfo()
	return &driver{session: s, engineID: id, cluster: cluster, bounds: bounds, endpoint: endpoint}, err
}

// isActive reports whether this management cluster manages a cluster.
func (c *Connector) isActive(ctx context.Context, infra *zvirtv1.NovaZVirtCluster) (bool, error) {
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

// findCluster returns the infrastructure cluster of a machine or a template.
func (c *Connector) findCluster(ctx context.Context, o client.Object) (*zvirtv1.NovaZVirtCluster, error) {
	return kit.FindCluster[*zvirtv1.NovaZVirtCluster](ctx, c.reader, &zvirtv1.NovaZVirtClusterList{}, o)
}

// open returns the session for a cluster, and the bounds of its identity.
func (c *Connector) open(ctx context.Context, cluster *zvirtv1.NovaZVirtCluster) (*engine.Session, engine.Bounds, error) {
	spec, ref := &cluster.Spec, cluster.Identity()
	login, err := c.resolver.Resolve(ctx, cluster.Namespace, credentials.Reference{
		Kind: ref.Kind, Name: ref.Name, Server: spec.Server, TLS: spec.TLS,
	})
	if err != nil {
		return nil, engine.Bounds{}, err
	}
	bounds := engine.Bounds{}
	if identity, ok := login.Identity.(*zvirtv1.NovaZVirtIdentity); ok {
		bounds = engine.Bounds{Identity: identity.Name, NovaZVirtBounds: identity.Spec.Bounds}
	}
	e := ovirt.Endpoint{
		Server: login.Server, Username: login.Username, Password: login.Password,
		Trust: endpoints.Trust(login.TLS),
	}
	user := sessions.User{Server: e.Server, Name: e.Username, Identity: login.Identity != nil}
	if identity, ok := login.Identity.(*zvirtv1.NovaZVirtIdentity); ok {
		e.Filter = ptr.Deref(identity.Spec.Filter, false)
	}
	e.Guard = c.logins.Guard(user, e.Password, "oVirt engine "+e.Server, func(err error) bool { return ovirt.IsStatus(err, http.StatusUnauthorized) })
	id := sessions.ID(e.Server, e.Username, e.Password, e.Trust.CABundle, e.Trust.Thumbprint,
		strconv.FormatBool(user.Identity), strconv.FormatBool(e.Filter))
	s, err := c.Open(id, e.Server, hypervisor.KeyOf(cluster), func(t *sessions.CreationQueue) (*engine.Session, error) {
		return engine.Open(e, c.options.timeouts, t, c.Machines.Add, func() { c.RequeueClusters(id) })
	})
	return s, bounds, err
}
