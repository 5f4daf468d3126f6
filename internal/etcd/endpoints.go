package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

// EndpointProblems checks each endpoint of external etcd, and returns messages
// about unhealthy endpoints.
func EndpointProblems(ctx context.Context, config *tls.Config, of []string) []string {
	answers := make([][]string, len(of))
	var group sync.WaitGroup
	for i, endpoint := range of {
		group.Go(func() { answers[i] = askEndpoint(ctx, config, endpoint) })
	}
	group.Wait()
	problems := slices.Concat(answers...)
	slices.Sort(problems)
	return slices.Compact(problems)
}

func askEndpoint(ctx context.Context, config *tls.Config, endpoint string) []string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	dialer := &net.Dialer{Control: endpoints.Control}
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{endpoint}, TLS: config.Clone(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if errors.Is(err, endpoints.ErrDenied) {
				// gRPC would retry until the timeout.
				fail(endpoints.ErrDenied)
			}
			return conn, err
		})},
	})
	if err != nil {
		return []string{fmt.Sprintf("Endpoint %s cannot be used", endpoint)}
	}
	// The error would only repeat the timeout.
	defer func() { _ = client.Close() }()
	status, err := client.Status(ctx, endpoint)
	if errors.Is(context.Cause(ctx), endpoints.ErrDenied) {
		return []string{fmt.Sprintf("Endpoint %s cannot be used: %v", endpoint, endpoints.ErrDenied)}
	}
	if err != nil {
		return []string{fmt.Sprintf("Endpoint %s does not answer", endpoint)}
	}
	var problems []string
	if status.Leader == 0 {
		problems = append(problems, fmt.Sprintf("Endpoint %s has no leader", endpoint))
	}
	for _, e := range status.Errors {
		if _, alarm, ok := strings.Cut(e, "alarm:"); ok {
			problems = append(problems, "Alarm "+strings.TrimSpace(alarm)+" is raised")
		}
	}
	return problems
}
