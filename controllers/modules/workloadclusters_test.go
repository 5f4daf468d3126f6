package modules

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unconnected is a cluster cache without a connection.
type unconnected struct{ clustercache.ClusterCache }

func (unconnected) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, clustercache.ErrClusterNotConnected
}

// The condition has the reason of the last request, and not only that there is no connection.
func TestUnreachableHasTheReason(t *testing.T) {
	none := func(client.ObjectKey) error { return nil }
	reason := errors.New("API server 192.0.2.1:6443: its certificate is not trusted")
	for name, tc := range map[string]struct {
		failure func(client.ObjectKey) error
		want    error
	}{
		"no request yet":   {none, errNoResponse},
		"a failed request": {func(client.ObjectKey) error { return reason }, reason},
	} {
		clusters := &workloadClusters{clusters: unconnected{}, refused: none, failure: tc.failure}
		if err := clusters.Reachable(t.Context(), key{}); !errors.Is(err, tc.want) {
			t.Errorf("%s: Reachable() = %v, want %v", name, err, tc.want)
		}
		if err := clusters.Substitute(t.Context(), key{}, map[string]string{"a": "b"}); !errors.Is(err, tc.want) {
			t.Errorf("%s: Substitute() = %v, want %v", name, err, tc.want)
		}
	}
}
