package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// endpoint waits for the address that the API server is reached at.
func (r *Reconciler) endpoint(_ context.Context, s *scope) error {
	if !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		s.waiting = "Waiting for the Cluster's spec.controlPlaneEndpoint: set host and port there or in the infrastructure cluster"
	}
	return nil
}

// vacateAgain is when to look whether the address has moved.
const vacateAgain = time.Second

// errVacating says that a machine that goes still holds the address.
var errVacating = errors.New("the endpoint's address is being moved to another node")

// vacate moves the cluster's address off a machine that goes, and fails with
// errVacating until it has. While the API server there still runs nothing is
// missed; without it clients would wait until kube-vip's lease runs out. If the
// address cannot be moved it moves by itself, a few seconds later.
func (r *Reconciler) vacate(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	node, endpoint := nodeOf(machine, s.tenant.Nodes), s.tenant.Endpoint
	if node == nil || !node.Ready || endpoint.Holder == "" || !s.tenant.Answers {
		return nil
	}
	if endpoint.Holder != node.Name {
		if endpoint.Settled {
			return nil
		}
		// Who held the address before may be the one that goes.
		return errVacating
	}
	to := heir(s, node.Name)
	if to == "" {
		return nil
	}
	err := r.Tenants.MoveEndpoint(ctx, s.key(), node.Name, to)
	if apierrors.IsConflict(err) {
		// The holder renewed its lease in this moment, as it does each second.
		return errVacating
	}
	if err != nil {
		r.complain(s, "EndpointNotMoved", "MoveEndpoint", err)
		return nil
	}
	r.event(s, corev1.EventTypeNormal, "EndpointMoved", "MoveEndpoint",
		fmt.Sprintf("Moved the endpoint's address from node %s to node %s", node.Name, to))
	return errVacating
}

// heir is a node that may take the address: one that is ready and whose
// components run, of a machine that stays.
func heir(s *scope, but string) string {
	for _, machine := range s.sorted() {
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		node := nodeOf(machine, s.tenant.Nodes)
		if node != nil && node.Name != but && node.Ready && node.Components.running(!externalEtcd(s)) {
			return node.Name
		}
	}
	return ""
}
