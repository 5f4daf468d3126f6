package controlplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// endpointMover moves the endpoint's address off machines to be deleted.
type endpointMover struct {
	*scope.Config

	endpointMoves endpointMoves
}

// endpoint waits for the address of the API server.
func (r *endpointMover) endpoint(_ context.Context, s *scope.Scope) error {
	if !s.Cluster.Spec.ControlPlaneEndpoint.IsValid() {
		s.Waiting = "Waiting for the Cluster's spec.controlPlaneEndpoint: set host and port there or in the infrastructure cluster"
	}
	return nil
}

const (
	// endpointMoveRequeue is the requeue interval while the address moves.
	endpointMoveRequeue = time.Second
	// endpointMoveTimeout is how long a machine to be deleted waits for another one to
	// take the address. A kubelet retries at least every 5 minutes to pull an
	// image or to restart a container, so a problem that is fixed meanwhile is
	// fixed in time.
	endpointMoveTimeout = 10 * time.Minute
)

// endpointMoveError means that a machine to be deleted may still hold the address.
type endpointMoveError struct{ waits string }

// Error implements error.
func (e *endpointMoveError) Error() string { return e.waits }

// moveEndpoint moves the cluster's address off a machine to be deleted, and returns a
// endpointMoveError until it has moved. While the API server there still runs, no
// request fails; without the move clients would wait until kube-vip's lease
// expires. If the address cannot be moved, it moves by itself a few seconds
// later to another kube-vip. If no other kube-vip runs, the machine waits for a
// limited time: its own kube-vip is the last way to reach the cluster.
func (r *endpointMover) moveEndpoint(ctx context.Context, s *scope.Scope, machine *clusterv1.Machine) error {
	node := facts.NodeOf(machine, s.Workload.Nodes)
	if node == nil || !hostResponds(s, machine, node) || s.Workload.Endpoint.Holder == "" || !s.Workload.Answers {
		return nil
	}
	is := nextEndpointStep(s, node.Name, r.endpointMoves.tried(machine.UID))
	switch {
	case is.waits == "":
		return nil
	case r.CurrentTime().Sub(r.endpointMoves.begin(machine.UID, r.CurrentTime())) >= endpointMoveTimeout:
		r.Warn(s, controlplanev1.EndpointNotMovedEventReason, "MoveEndpoint",
			fmt.Errorf("machine %s is deleted although no other machine has taken the endpoint's address from it within %.0f minutes", machine.Name, endpointMoveTimeout.Minutes()))
		return nil
	case is.to == "":
		return &endpointMoveError{is.waits}
	}
	if err := r.WorkloadClusters.MoveEndpoint(ctx, s.Key(), s.Workload.Endpoint.Holder, is.to); apierrors.IsConflict(err) {
		return &endpointMoveError{is.waits}
	} else if err != nil {
		r.Warn(s, controlplanev1.EndpointNotMovedEventReason, "MoveEndpoint", err)
		return nil
	}
	r.endpointMoves.note(machine.UID, is.to)
	r.Event(s, corev1.EventTypeNormal, "EndpointMoved", "MoveEndpoint",
		fmt.Sprintf("Moved the endpoint's address from node %s to node %s", node.Name, is.to))
	return &endpointMoveError{is.waits}
}

// endpointStep is the next step for the address before a machine is deleted.
type endpointStep struct {
	// to is the node to move the address to; empty for none.
	to string
	// waits is why the machine has to wait, for users; empty if it may be
	// deleted.
	waits string
}

// nextEndpointStep decides the next step before the machine of a node is deleted.
// tried are the nodes that the address was moved to meanwhile.
func nextEndpointStep(s *scope.Scope, node string, tried sets.Set[string]) endpointStep {
	at := s.Workload.Endpoint
	if at.Holder != node {
		switch {
		case at.Confirmed:
			return endpointStep{}
		case !at.Unconfirmed:
			// The previous holder of the address may be the machine to be
			// deleted.
			return endpointStep{waits: holderMessage(at.Holder)}
		case at.Before != node:
			// A lease that is not renewed, for instance a leftover.
			return endpointStep{}
		}
	}
	to, without := nextHolder(s, node, tried.Union(sets.New(at.Holder)))
	switch {
	case to != "":
		return endpointStep{to: to, waits: holderMessage(to)}
	case len(without) == 0 || s.ControlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP:
		return endpointStep{}
	}
	return endpointStep{waits: fmt.Sprintf("Waiting for kube-vip on another machine to take the endpoint's address from node %s: kube-vip does not run on %s. "+
		"The machine is deleted nevertheless after %.0f minutes, and the endpoint may then be unreachable", node, plan.Shorten(without), endpointMoveTimeout.Minutes())}
}

// holderMessage returns the message for a node that has to take the address.
func holderMessage(node string) string {
	return fmt.Sprintf("Waiting for node %s to take the endpoint's address", node)
}

// hostResponds reports whether a machine's host responds: its kubelet, or its API
// server while the kubelet does not.
func hostResponds(s *scope.Scope, machine *clusterv1.Machine, node *facts.Node) bool {
	return node.Ready || s.Workload.Serving.Has(machine.Name)
}

// nextHolder returns a node to move the address to, of a machine that is not being
// deleted: one that is ready and runs all components, or else one whose kubelet
// does not respond and whose API server is ready. If there is none, without are
// the nodes on which kube-vip does not run or did not take the address, unless
// another node may take it by itself.
func nextHolder(s *scope.Scope, but string, tried sets.Set[string]) (to string, without []string) {
	byItself := false
	for _, machine := range s.Sorted() {
		node := facts.NodeOf(machine, s.Workload.Nodes)
		if !machine.DeletionTimestamp.IsZero() || node == nil || node.Name == but || !hostResponds(s, machine, node) {
			continue
		}
		kubeVIP, known := kubeVIPOf(s, machine, node)
		switch {
		case tried.Has(node.Name), node.Ready && known && kubeVIP.State != facts.Running:
			without = append(without, node.Name)
		case serves(s, machine, node):
			return node.Name, nil
		case !node.Ready:
			to = node.Name
		default:
			byItself = true
		}
	}
	if to != "" {
		return to, nil
	}
	if byItself {
		return "", nil
	}
	return "", without
}
