package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

const (
	// scheme is the URL scheme of servers in the kubeconfigs that Secrets
	// returns: scheme://<number of the Secrets>/<namespace>/<cluster>.
	scheme = "nova-workload"

	// idleConns is the number of idle connections of a route.
	idleConns = 25
)

// Cluster's events.
const (
	// KubeconfigRefusedReason: the kubeconfig in Secret `<cluster>-kubeconfig` has a field
	// that managers do not accept; the message names it.
	//
	// Action: write a kubeconfig with inline certificates; see
	// docs/security.md#kubeconfigs.
	KubeconfigRefusedReason = "KubeconfigRefused"
)

// errUnknown is returned for a cluster whose kubeconfig was not read yet, or
// not for long. The cluster cache reads it before it connects.
var errUnknown = errors.New("the kubeconfig of the cluster has not been read")

// Secrets reads Secrets for Cluster API's cluster cache. In place of a
// kubeconfig it returns one that leads through this package, or a RefusedError.
type Secrets struct {
	client.Reader
	user     *User
	recorder events.EventRecorder
	number   string

	routes reconcile.Memory[client.ObjectKey, *route]
}

// route is the connection to one workload cluster.
type route struct {
	kubeconfig []byte
	server     *url.URL
	transport  *http.Transport
	next       http.RoundTripper
	used       time.Time
	// renew is when the route needs a new certificate. Zero means never.
	renew time.Time
	// renewing is when that was last tried.
	renewing time.Time
	// refused is set if the kubeconfig is refused, and reported is the message of
	// the last event.
	refused  error
	reported string
	failure  failure
}

// all are the Secrets of this process by number, because http.DefaultTransport
// is the process's.
var (
	all      sync.Map
	numbers  atomic.Int64
	register = sync.OnceFunc(func() {
		if t, ok := http.DefaultTransport.(*http.Transport); ok {
			t.RegisterProtocol(scheme, router{})
		}
	})
)

// NewSecrets returns Secrets over reader. Connections are those of user, or of
// the kubeconfigs if it is nil. A refused kubeconfig is an event of its Cluster;
// recorder may be nil.
func NewSecrets(reader client.Reader, user *User, recorder events.EventRecorder) *Secrets {
	register()
	s := &Secrets{
		Reader: reader, user: user, recorder: recorder, number: strconv.FormatInt(numbers.Add(1), 10),
	}
	all.Store(s.number, s)
	return s
}

// Refused returns why the kubeconfig of a cluster is refused, as of the last
// time that it was read.
func (s *Secrets) Refused(cluster client.ObjectKey) error {
	if r, _ := s.routes.Get(cluster); r != nil {
		return r.refused
	}
	return nil
}

// Get implements client.Reader.
func (s *Secrets) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	cluster, found := strings.CutSuffix(key.Name, "-"+string(secret.Kubeconfig))
	if !found {
		return s.Reader.Get(ctx, key, o, options...)
	}
	of := client.ObjectKey{Namespace: key.Namespace, Name: cluster}
	err := s.Reader.Get(ctx, key, o, options...)
	if apierrors.IsNotFound(err) {
		s.forgetIf(func(key client.ObjectKey, _ *route) bool { return key == of })
	}
	if err != nil {
		return err
	}
	read, ok := o.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("reading a kubeconfig into %T", o)
	}
	if err := s.connect(ctx, of, read.Data[secret.KubeconfigDataName]); err != nil {
		if _, refused := errors.AsType[*RefusedError](err); refused {
			s.recordRefusal(ctx, of, err)
		}
		return err
	}
	routed, err := s.kubeconfig(of)
	if err != nil {
		return err
	}
	read.Data = map[string][]byte{secret.KubeconfigDataName: routed}
	return nil
}

// kubeconfig returns the kubeconfig for the cluster cache.
func (s *Secrets) kubeconfig(of client.ObjectKey) ([]byte, error) {
	server := url.URL{Scheme: scheme, Host: s.number, Path: "/" + of.Namespace + "/" + of.Name}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{of.Name: {Server: server.String()}},
		Contexts:       map[string]*clientcmdapi.Context{of.Name: {Cluster: of.Name}},
		CurrentContext: of.Name,
	})
}

// connect creates the route to a cluster, unless the existing route has the same
// kubeconfig and needs no new certificate.
func (s *Secrets) connect(ctx context.Context, of client.ObjectKey, kubeconfig []byte) error {
	if s.keep(of, kubeconfig) {
		return nil
	}
	next, err := s.newRoute(ctx, of, kubeconfig)
	refusal, refused := errors.AsType[*RefusedError](err)
	if err != nil && !refused {
		// Neither the kubeconfig nor the route that exists is to blame.
		return err
	}
	s.routes.Update(of, func(was **route) {
		if refused {
			next = &route{used: time.Now(), refused: refusal}
			if *was != nil {
				next.reported = (*was).reported
			}
		}
		(*was).close()
		*was = next
	})
	return err
}

// keep reports whether the route to a cluster stays as it is.
func (s *Secrets) keep(of client.ObjectKey, kubeconfig []byte) bool {
	now := time.Now()
	// Routes that are not used any more are those of deleted clusters.
	s.forgetIf(func(_ client.ObjectKey, r *route) bool { return now.Sub(r.used) > timelimits.Hourly })
	kept := false
	s.with(of, func(r *route) {
		if kept = bytes.Equal(r.kubeconfig, kubeconfig) && r.refused == nil && !r.due(now); kept {
			r.used = now
		}
	})
	return kept
}

// recordRefusal records an event on the Cluster, once for each reason.
func (s *Secrets) recordRefusal(ctx context.Context, of client.ObjectKey, why error) {
	if s.recorder == nil {
		return
	}
	cluster := &clusterv1.Cluster{}
	if err := s.Reader.Get(ctx, of, cluster); err != nil {
		return
	}
	s.with(of, func(r *route) {
		if r.reported != why.Error() {
			r.reported = why.Error()
			s.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, KubeconfigRefusedReason, "Connect",
				"Secret %s: %s", secret.Name(of.Name, secret.Kubeconfig), why.Error())
		}
	})
}

// with calls a function with the route to a cluster, if there is one. Other
// calls wait until it returns.
func (s *Secrets) with(of client.ObjectKey, do func(r *route)) {
	s.routes.Update(of, func(r **route) {
		if *r != nil {
			do(*r)
		}
	})
}

// forgetIf closes and forgets the routes for which old returns true.
func (s *Secrets) forgetIf(old func(client.ObjectKey, *route) bool) {
	s.routes.ForgetIf(func(of client.ObjectKey, r *route) bool {
		forget := r == nil || old(of, r)
		if forget {
			r.close()
		}
		return forget
	})
}

// route returns the route to a cluster.
func (s *Secrets) route(ctx context.Context, of client.ObjectKey) (*route, error) {
	r, due := s.routeNow(of)
	if due {
		// Requests under way stay on the connection that they began on.
		if err := s.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: secret.Name(of.Name, secret.Kubeconfig)}, &corev1.Secret{}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Renewing the manager's certificate for a workload cluster", "Cluster", of.String())
		}
		r, _ = s.routeNow(of)
	}
	switch {
	case r == nil:
		return nil, errUnknown
	case r.refused != nil:
		return nil, r.refused
	}
	return r, nil
}

// routeNow returns the route to a cluster, and whether the caller is to renew
// it: one request does that while others go on with the route as it is.
func (s *Secrets) routeNow(of client.ObjectKey) (r *route, due bool) {
	now := time.Now()
	s.with(of, func(known *route) {
		r = known
		r.used = now
		if due = r.due(now) && now.Sub(r.renewing) > timelimits.Fresh; due {
			r.renewing = now
		}
	})
	return r, due
}

// due reports whether the route needs a new certificate.
func (r *route) due(now time.Time) bool { return !r.renew.IsZero() && now.After(r.renew) }

func (s *Secrets) newRoute(ctx context.Context, of client.ObjectKey, kubeconfig []byte) (*route, error) {
	config, renew, err := s.user.RESTConfig(ctx, of, kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("reading server: %w", err)
	}
	transport, next, err := newTransport(config)
	if err != nil {
		return nil, err
	}
	return &route{kubeconfig: bytes.Clone(kubeconfig), server: server, transport: transport, next: next, used: time.Now(), renew: renew}, nil
}

// newTransport returns a new transport for config, because other connections may
// share a transport of client-go, and a round tripper that sends requests with
// the credentials and the bounds of config.
func newTransport(config *rest.Config) (*http.Transport, http.RoundTripper, error) {
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, nil, &RefusedError{Field: "certificate data", Why: "cannot be loaded"}
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: config.Dial, TLSClientConfig: settings,
		TLSHandshakeTimeout: timelimits.ConnectTimeout, ResponseHeaderTimeout: timelimits.Fresh,
		MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: idleConns, DisableCompression: true,
	})
	next, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, nil, fmt.Errorf("reading credentials: %w", err)
	}
	return transport, next, nil
}

func (r *route) close() {
	if r != nil && r.transport != nil {
		r.transport.CloseIdleConnections()
	}
}

// router sends requests of the scheme to workload clusters.
type router struct{}

// RoundTrip implements http.RoundTripper.
func (router) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := send(r)
	if err != nil && r.Body != nil {
		// A RoundTripper closes the body also on errors.
		_ = r.Body.Close()
	}
	return response, err
}

func send(r *http.Request) (*http.Response, error) {
	of, ok := all.Load(r.URL.Host)
	if !ok {
		return nil, errUnknown
	}
	secrets, ok := of.(*Secrets)
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if !ok || len(parts) < 2 {
		return nil, errUnknown
	}
	cluster := client.ObjectKey{Namespace: parts[0], Name: parts[1]}
	to, err := secrets.route(r.Context(), cluster)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.URL.RawPath = to.server.Scheme, to.server.Host, "", ""
	out.URL.Path = to.server.Path + "/"
	if len(parts) > 2 {
		out.URL.Path += parts[2]
		if parts[2] == "api" || parts[2] == "apis" {
			listGroupsOnly(out.Header)
		}
	}
	response, err := to.next.RoundTrip(out)
	secrets.record(cluster, to, response, err)
	return response, err
}

// listGroupsOnly requests a list of API groups without their types. Aggregated
// discovery returns all types of the workload cluster, and the mapper of each
// connection would keep them; without it, the mapper reads the groups that are
// used.
func listGroupsOnly(header http.Header) {
	header.Set("Accept", discovery.AcceptV1)
}
