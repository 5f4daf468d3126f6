package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// APIServers requests /readyz of API servers at their own addresses. It
// returns the machines whose API server is ready, and those where it is not: it
// responds with an error, or the host refuses the connection. A machine without a
// response in time is in neither set.
func APIServers(ctx context.Context, config *rest.Config, addresses map[string]string) (serving, failing sets.Set[string]) {
	serving, failing = sets.New[string](), sets.New[string]()
	if config == nil {
		return serving, failing
	}
	c, err := newConnection(config)
	if err != nil {
		return serving, failing
	}
	ctx, cancel := context.WithTimeout(ctx, timelimits.ReadTimeout)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig: c.directTLS(), DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		DialContext: (&net.Dialer{Control: endpoints.Control}).DialContext,
	}
	type answer struct {
		machine string
		status  int
		err     error
	}
	answers := make(chan answer, len(addresses))
	for machine, address := range addresses {
		go func() {
			status, err := readyz(ctx, transport, address)
			answers <- answer{machine: machine, status: status, err: err}
		}()
	}
	for range addresses {
		switch a := <-answers; {
		case a.status == http.StatusOK:
			serving.Insert(a.machine)
		case a.status >= http.StatusInternalServerError, errors.Is(a.err, syscall.ECONNREFUSED):
			failing.Insert(a.machine)
		}
	}
	return serving, failing
}

// readyz returns the HTTP status of /readyz of the API server at an address: 200 if
// it is ready.
func readyz(ctx context.Context, transport http.RoundTripper, address string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("creating request: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, fmt.Errorf("requesting /readyz: %w", err)
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}
