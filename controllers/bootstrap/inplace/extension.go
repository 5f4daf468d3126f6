package inplace

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/bootstrap/nodesettings"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

const (
	// hookTimeout limits the work for one request.
	hookTimeout = 15 * time.Second
	// callTimeout is how long Cluster API waits for a response.
	callTimeout = 20 * time.Second
	// answerTimeout is how long a response waits for the workload cluster. A slow
	// API server of a tenant must not hold the workers of Cluster API: the work
	// continues, and a later request that waits as long responds with its result.
	answerTimeout = 2 * time.Second
	// resultValidity is how long a result is kept for a later request.
	resultValidity = time.Minute
	// slowRetry is the time until Cluster API repeats a request whose workload
	// cluster did not respond in time.
	slowRetry = 15 * time.Second
	// retry is the time until Cluster API repeats a request for a machine whose
	// update is in progress.
	retry = 5 * time.Second
)

// Extension is the runtime extension.
type Extension struct {
	// Client writes to the management cluster. Reader reads from its API server,
	// without a cache.
	Client client.Client
	Reader client.Reader
	// WorkloadClusters connects to the workload clusters.
	WorkloadClusters clustercache.ClusterCache
	// Settings renders the desired settings of a machine.
	Settings func(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, config *bootstrapv1.NovaConfig, hardware nodeconfig.Hardware) (nodesettings.Settings, error)
	// Programs finds the programs for another version.
	Programs Programs
	// Address is the host and the port to serve at.
	Address string
	// Namespace is the namespace of the Secret with the certificate and of the
	// Service.
	Namespace string

	// updates is the work for machines that are being updated, in workload clusters.
	updates singleflight.Group
	// results are the results of work that took longer than a response, by the UID
	// of the machine.
	results sync.Map
}

// SetupWithManager serves the extension with the manager, on each replica.
func (e *Extension) SetupWithManager(mgr ctrl.Manager) error {
	host, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return fmt.Errorf("reading the address of the runtime extension: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return fmt.Errorf("reading the address of the runtime extension: %q is no port", port)
	}
	certificate := &certificate{client: e.Client, reader: e.Reader, key: client.ObjectKey{Namespace: e.Namespace, Name: SecretName}, host: host}
	if err := mgr.Add(certificate); err != nil {
		return fmt.Errorf("adding certificate of the runtime extension: %w", err)
	}
	s, err := e.server(host, int(number), certificate)
	if err != nil {
		return err
	}
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("adding runtime extension: %w", err)
	}
	return nil
}

func (e *Extension) server(host string, port int, certificate *certificate) (*server.Server, error) {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return nil, fmt.Errorf("adding hooks: %w", err)
	}
	s, err := server.New(server.Options{Catalog: catalog, Host: host, Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS12
		c.GetCertificate = certificate.get
	}}})
	if err != nil {
		return nil, fmt.Errorf("making runtime extension: %w", err)
	}
	for _, handler := range []server.ExtensionHandler{
		{Hook: runtimehooksv1.CanUpdateMachineSet, Name: "can-update-machine-set", HandlerFunc: e.CanUpdateMachineSet},
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", HandlerFunc: e.CanUpdateMachine},
		{Hook: runtimehooksv1.UpdateMachine, Name: "update-machine", HandlerFunc: e.UpdateMachine},
	} {
		handler.TimeoutSeconds = ptr.To(int32(callTimeout.Seconds()))
		handler.FailurePolicy = ptr.To(runtimehooksv1.FailurePolicyFail)
		if err := s.AddExtensionHandler(handler); err != nil {
			return nil, fmt.Errorf("adding handler %s: %w", handler.Name, err)
		}
	}
	return s, nil
}
