package vsphere

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/credentials"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/sessions"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/resolve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// Options are settings for the sessions with all vCenters.
type Options struct {
	// MaxCreations limits the VMs that one vCenter creates at the same time.
	// Zero means no limit.
	MaxCreations int
	// Namespace is the manager's own namespace: it has the Secrets that
	// cluster-scoped identities reference.
	Namespace string

	// timeouts and wrap are for tests.
	timeouts vcenter.Timeouts
	wrap     vcenter.Wrap
	// logins limits the rejected logins of all sessions.
	logins *sessions.LoginLimiter
}

// Connector shares sessions with vCenters between machines and clusters.
type Connector struct {
	*sessions.Pool[*session]

	reader   client.Reader
	options  Options
	accounts *credentials.Resolver
}

var (
	_ hypervisor.Connector[*vspherev1.NovaVSphereMachine] = &Connector{}
	_ hypervisor.Inspector[*vspherev1.NovaVSphereCluster] = &Connector{}
)

// NewConnector returns a Connector without sessions. The reader reads
// Clusters, NovaVSphereClusters, NovaVSphereIdentities, the metadata of namespaces, and
// Secrets. It must read Secrets from the API server and not from a cache.
func NewConnector(reader client.Reader, o Options) *Connector {
	if o.timeouts == (vcenter.Timeouts{}) {
		o.timeouts = vcenter.DefaultTimeouts
	}
	o.logins = sessions.NewLoginLimiter(o.timeouts.MinLoginRetry)
	return &Connector{
		reader:  reader,
		options: o,
		accounts: &credentials.Resolver{
			Reader: reader, Namespace: o.Namespace, Kind: vspherev1.NovaVSphereIdentityKind,
			NewIdentity: func() credentials.Identity { return &vspherev1.NovaVSphereIdentity{} },
		},
		Pool: sessions.NewPool[*session](o.MaxCreations),
	}
}

// Connect returns a driver for m. It waits only a short time for a session
// that is being opened, and not at all for a session that is known to be down.
func (c *Connector) Connect(ctx context.Context, m *vspherev1.NovaVSphereMachine) (hypervisor.Driver[*vspherev1.NovaVSphereMachine], error) {
	cluster, err := c.findCluster(ctx, m)
	if err != nil {
		return nil, err
	}
	s, bounds, err := c.open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	api, _, err := s.Client(ctx, hypervisor.KeyOf(m))
	if err != nil {
		return nil, err
	}
	endpoint, err := kit.EndpointHost(ctx, c.reader, cluster, cluster.Spec.ControlPlaneEndpoint.Host)
	return &driver{
		vCenterID: api.ServiceContent.About.InstanceUuid,
		session:   s,
		clusterID: cluster.Annotations[infrav1.ClusterIDAnnotation],
		cluster:   &cluster.Spec,
		names:     resolve.NewResolver(s.names, &cluster.Spec, bounds),
		endpoint:  endpoint,
	}, err
}

// findCluster returns the infrastructure cluster of a machine or a template.
func (c *Connector) findCluster(ctx context.Context, o client.Object) (*vspherev1.NovaVSphereCluster, error) {
	return kit.FindCluster[*vspherev1.NovaVSphereCluster](ctx, c.reader, &vspherev1.NovaVSphereClusterList{}, o)
}

// open returns the session for the endpoint and credentials of cluster, and
// the bounds that its identity sets.
func (c *Connector) open(ctx context.Context, cluster *vspherev1.NovaVSphereCluster) (*session, resolve.Bounds, error) {
	login, err := c.login(ctx, cluster)
	if err != nil {
		return nil, resolve.Bounds{}, err
	}
	e := vcenter.Endpoint{
		Server: login.Server, Username: login.Username, Password: login.Password, Identity: login.Identity != nil,
		TLS: endpoints.Trust(login.TLS),
	}
	id := e.ID()
	s, err := c.Open(id, e.Server, hypervisor.KeyOf(cluster), func(t *sessions.CreationQueue) (*session, error) {
		return newSession(e, &c.options, t, func(k hypervisor.Key) { c.Machines.Add(k) }, func() { c.RequeueClusters(id) }), nil
	})
	return s, resolve.BoundsOf(login), err
}

// login reads the endpoint and the credentials of cluster.
func (c *Connector) login(ctx context.Context, cluster *vspherev1.NovaVSphereCluster) (credentials.Login, error) {
	spec, ref := &cluster.Spec, cluster.Identity()
	login, err := c.accounts.Resolve(ctx, cluster.Namespace, credentials.Reference{
		Kind: ref.Kind, Name: ref.Name, Server: spec.Server, TLS: spec.TLS,
	})
	if err != nil {
		return login, fmt.Errorf("finding the vCenter account: %w", err)
	}
	return login, nil
}
