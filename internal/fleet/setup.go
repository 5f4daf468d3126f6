package fleet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

const (
	// headerTimeout limits the time in which a browser sends its request.
	headerTimeout = 5 * time.Second
	// idleTimeout limits how long a connection without a request stays open.
	idleTimeout = time.Minute
	// maxHeader is the size of the largest header: tokens of users with many
	// groups are long.
	maxHeader = 64 << 10
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nova_fleet_requests_total",
		Help: "Requests to the fleet page by result of the authentication: accepted, rejected or failed.",
	}, []string{"result"})
	open = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nova_fleet_streams",
		Help: "Open fleet pages, of at most 200.",
	})
)

func init() { metrics.Registry.MustRegister(requests, open) }

// changes counts the changes of the objects on the page.
type changes struct{ version atomic.Int64 }

func (c *changes) get() int64 { return c.version.Load() }

// watch counts the changes of a kind.
func (c *changes) watch(ctx context.Context, mgr ctrl.Manager, kind client.Object) error {
	informer, err := mgr.GetCache().GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	changed := func() { c.version.Add(1) }
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, DeleteFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			was, isObject := before.(client.Object)
			is, isObjectToo := after.(client.Object)
			if isObject && isObjectToo && was.GetResourceVersion() != is.GetResourceVersion() {
				changed()
			}
		},
	})
	return err
}

// Setup adds the server of the page to mgr. If certificates is set, it is the
// folder with tls.crt and tls.key.
func Setup(ctx context.Context, mgr ctrl.Manager, address, certificates string) error {
	users, err := newUsers(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	p := &page{reader: mgr.GetCache(), users: users, changes: &changes{}, streams: make(chan struct{}, maxStreams), now: time.Now}
	for _, kind := range []client.Object{&clusterv1.Cluster{}, &clusterv1.Machine{}, &controlplanev1.NovaControlPlane{}} {
		if err := p.changes.watch(ctx, mgr, kind); err != nil {
			return err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for pages: %w", err)
	}
	if certificates != "" {
		watcher, err := certwatcher.New(filepath.Join(certificates, "tls.crt"), filepath.Join(certificates, "tls.key"))
		if err != nil {
			return fmt.Errorf("reading certificate of the page: %w", err)
		}
		if err := mgr.Add(watcher); err != nil {
			return fmt.Errorf("adding certificate of the page: %w", err)
		}
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate, NextProtos: []string{"http/1.1"}})
	}
	server := &http.Server{
		Handler: p.handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	return mgr.Add(&manager.Server{Name: "fleet page", Server: server, Listener: listener})
}
