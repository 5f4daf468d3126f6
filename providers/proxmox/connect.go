package proxmox

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	proxmoxv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/proxmox/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/site"
)

// Options are the settings for all Proxmox VE clusters.
type Options struct {
	// MaxCreations is the maximum number of concurrent clones per Proxmox VE cluster. If
	// not set, the number is not limited.
	MaxCreations int
	// Namespace is the namespace of the manager. It contains the Secrets of
	// cluster-scoped identities.
	Namespace string

	// timeouts are set by tests only.
	timeouts site.Timeouts
}

// Connector shares the sessions between machines and clusters.
type Connector struct {
	*sessions.Pool[*site.Session]

	reader   client.Reader
	resolver *credentials.Resolver
	options  Options
	logins   *sessions.LoginLimiter
}

var (
	_ hypervisor.Connector[*proxmoxv1.NovaProxmoxMachine]     = &Connector{}
	_ hypervisor.Inspector[*proxmoxv1.NovaProxmoxCluster]     = &Connector{}
	_ hypervisor.Sizer[*proxmoxv1.NovaProxmoxMachineTemplate] = &Connector{}
)

// NewConnector returns a Connector without sessions. The reader reads Clusters and
// NovaProxmoxClusters, and, without a cache, the Secrets and identities that they
// reference.
func NewConnector(reader client.Reader, o Options) *Connector {
	if o.timeouts == (site.Timeouts{}) {
		o.timeouts = site.DefaultTimeouts
	}
	return &Connector{
		reader: reader,
		resolver: &credentials.Resolver{
			Reader: reader, Namespace: o.Namespace, Kind: proxmoxv1.NovaProxmoxIdentityKind,
			NewIdentity: func() credentials.Identity { return &proxmoxv1.NovaProxmoxIdentity{} },
		},
		options: o,
		Pool:    sessions.NewPool[*site.Session](o.MaxCreations),
		logins:  sessions.NewLoginLimiter(o.timeouts.Session.MinLoginRetry),
	}
}

// Connect returns a driver for m. It waits only briefly for a session that is being
// opened, and does not wait for a session that is known to be down.
func (c *Connector) Connect(ctx context.Context, m *proxmoxv1.NovaProxmoxMachine) (hypervisor.Driver[*proxmoxv1.NovaProxmoxMachine], error) {
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
	endpoint, err := kit.EndpointHost(ctx, c.reader, cluster, cluster.Spec.ControlPlaneEndpoint.Host)
	id, _ := s.Info()
	return &driver{session: s, siteID: id, cluster: cluster, bounds: bounds, endpoint: endpoint}, err
}

// findCluster returns the infrastructure cluster of a machine or a template.
func (c *Connector) findCluster(ctx context.Context, o client.Object) (*proxmoxv1.NovaProxmoxCluster, error) {
	return kit.FindCluster[*proxmoxv1.NovaProxmoxCluster](ctx, c.reader, &proxmoxv1.NovaProxmoxClusterList{}, o)
}

// open returns the session for a cluster, and the bounds of its identity.
func (c *Connector) open(ctx context.Context, cluster *proxmoxv1.NovaProxmoxCluster) (*site.Session, plan.Bounds, error) {
	spec, ref := &cluster.Spec, cluster.Identity()
	login, err := c.resolver.Resolve(ctx, cluster.Namespace, credentials.Reference{Kind: ref.Kind, Name: ref.Name, Server: spec.Server, TLS: spec.TLS})
	if err != nil {
		return nil, plan.Bounds{}, err
	}
	bounds, more := plan.Bounds{}, spec.AdditionalServers
	if identity, ok := login.Identity.(*proxmoxv1.NovaProxmoxIdentity); ok {
		bounds = plan.Bounds{Identity: identity.Name, NovaProxmoxBounds: identity.Spec.Bounds}
		more = identity.Spec.AdditionalServers
	}
	e := pve.Endpoint{Servers: append([]string{login.Server}, more...), Username: login.Username, Password: login.Password, Trust: endpoints.Trust(login.TLS)}
	isIdentity := login.Identity != nil
	// Rejected logins count for the server that rejected them: the first one may be a name
	// that a tenant makes up.
	e.Guard = func(ctx context.Context, server string, send func() error) error {
		user := sessions.User{Server: server, Name: login.Username, Identity: isIdentity}
		return c.logins.Guard(user, login.Password, "Proxmox VE "+server, func(err error) bool { return pve.IsStatus(err, http.StatusUnauthorized) })(ctx, send)
	}
	id := sessions.ID(strings.Join(e.Servers, " "), e.Username, e.Password, e.Trust.CABundle, e.Trust.Thumbprint, strconv.FormatBool(isIdentity))
	s, err := c.Open(id, login.Server, hypervisor.KeyOf(cluster), func(q *sessions.CreationQueue) (*site.Session, error) {
		return site.Open(e, c.options.timeouts, q, c.Machines.Add, func() { c.RequeueClusters(id) })
	})
	return s, bounds, err
}

// Inspect reports the Proxmox VE cluster of a cluster. It returns an error for a node of
// a placement or failure domain that does not exist, before the first machine uses it.
func (c *Connector) Inspect(ctx context.Context, cluster *proxmoxv1.NovaProxmoxCluster) (hypervisor.Endpoint, error) {
	s, _, err := c.open(ctx, cluster)
	if err != nil {
		return hypervisor.Endpoint{}, err
	}
	if err := s.Ready(ctx, hypervisor.Key{}); err != nil {
		return hypervisor.Endpoint{}, err
	}
	trust := s.Trust()
	out := hypervisor.Endpoint{Server: s.Server(), CABundle: trust.CABundle, Thumbprint: trust.Thumbprint}
	out.ID, out.Version = s.Info()
	found := s.Site()
	out.VMs = plan.OwnedVMs(cluster.Annotations[infrav1.ClusterIDAnnotation], cluster.Namespace, found.Guests)
	check := func(nodes []string) error {
		for _, name := range nodes {
			if !slices.ContainsFunc(found.Nodes, func(n *pve.Resource) bool { return n.Node == name }) {
				return hypervisor.Failure(infrav1.PlacementNotFoundReason, "the node %q does not exist", name)
			}
		}
		return nil
	}
	if err := check(cluster.Spec.Placement.Nodes); err != nil {
		return out, err
	}
	for i := range cluster.Spec.FailureDomains {
		domain := &cluster.Spec.FailureDomains[i]
		if err := check(domain.Placement.Nodes); err != nil {
			return out, fmt.Errorf("failure domain %q: %w", domain.Name, err)
		}
		out.FailureDomains = append(out.FailureDomains, clusterv1.FailureDomain{Name: domain.Name, ControlPlane: ptr.To(domain.TakesControlPlane())})
	}
	return out, nil
}

// Size reports the capacity of a node created from t, from t itself or the template in
// Proxmox VE.
func (c *Connector) Size(ctx context.Context, t *proxmoxv1.NovaProxmoxMachineTemplate) (hypervisor.Size, error) {
	cluster, s, bounds, err := kit.OpenForTemplate(ctx, t, c.findCluster, c.open)
	if err != nil {
		return hypervisor.Size{}, err
	}
	return plan.Size(&cluster.Spec, &t.Spec.Template.Spec, s.Site(), &bounds)
}
