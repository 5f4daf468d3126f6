package controlplane

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

// servingBound bounds the requests to all API servers of one workload cluster.
const servingBound = 2 * time.Second

// servingAPIServers requests /readyz of API servers at their own addresses, and
// returns the machines whose API server is ready.
func servingAPIServers(ctx context.Context, config *rest.Config, addresses map[string]string) sets.Set[string] {
	found := sets.New[string]()
	if config == nil {
		return found
	}
	c, err := newConnection(config)
	if err != nil {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, servingBound)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig: c.trusting(), DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		DialContext: (&net.Dialer{Control: endpoints.Control}).DialContext,
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for machine, address := range addresses {
		group.Go(func() {
			if !answersReady(ctx, transport, address) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found.Insert(machine)
		})
	}
	group.Wait()
	return found
}

// answersReady reports whether the API server at an address says that it is ready.
func answersReady(ctx context.Context, transport http.RoundTripper, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
