package main

import "testing"

func TestCountWrites(t *testing.T) {
	got, err := countWrites([]byte(`# HELP apiserver_request_total x
apiserver_request_total{code="200",group="",resource="pods",verb="LIST"} 7
apiserver_request_total{code="201",group="",resource="pods",verb="POST"} 2
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",verb="PUT"} 40
apiserver_request_total{code="200",group="x",resource="y",verb="APPLY"} 1e+01
other{verb="POST"} 3
`))
	if err != nil || got != 12 {
		t.Errorf("countWrites() = %d, %v, want 12", got, err)
	}
}
