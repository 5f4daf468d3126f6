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
)

// endpoint waits for the address of the API server.
func (r *Reconciler) endpoint(_ context.Context, s *scope) error {
	if !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		s.waiting = "Waiting for the Cluster's spec.controlPlaneEndpoint: set host and port there or in the infrastructure cluster"
	}
	return nil
}

const (
	// vacateAgain is the requeue interval while the address moves.
	vacateAgain = time.Second
	// vacateBound is how long a machine to be deleted waits for another one to
	// take the address. A kubelet retries at least every 5 minutes to pull an
	// image or to restart a container, so a problem that is fixed meanwhile is
	// fixed in time.
	vacateBound = 10 * time.Minute
)

// vacatingError means that a machine to be deleted may still hold the address.
type vacatingError struct{ waits string }

// Error implements error.
func (e *vacatingError) Error() string { return e.waits }

// vacate moves the cluster's address off a machine to be deleted, and returns a
// vacatingError until it has moved. While the API server there still runs, no
// request fails; without the move clients would wait until kube-vip's lease
// expires. If the address cannot be moved, it moves by itself a few seconds
// later to another kube-vip. If no other kube-vip runs, the machine waits for a
// limited time: its own kube-vip is the last way to reach the cluster.
func (r *Reconciler) vacate(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	node := nodeOf(machine, s.tenant.Nodes)
	if node == nil || !lives(s, machine, node) || s.tenant.Endpoint.Holder == "" || !s.tenant.Answers {
		return nil
	}
	is := vacancyOf(s, node.Name, r.handovers.tried(machine.UID))
	switch {
	case is.waits == "":
		return nil
	case r.now().Sub(r.handovers.begin(machine.UID, r.now())) >= vacateBound:
		r.complain(s, "EndpointNotMoved", "MoveEndpoint",
			fmt.Errorf("machine %s is deleted although no other machine has taken the endpoint's address from it within %.0f minutes", machine.Name, vacateBound.Minutes()))
		return nil
	case is.to == "":
		return &vacatingError{is.waits}
	}
	if err := r.Tenants.MoveEndpoint(ctx, s.key(), s.tenant.Endpoint.Holder, is.to); apierrors.IsConflict(err) {
		return &vacatingError{is.waits}
	} else if err != nil {
		r.complain(s, "EndpointNotMoved", "MoveEndpoint", err)
		return nil
	}
	r.handovers.note(machine.UID, is.to)
	r.event(s, corev1.EventTypeNormal, "EndpointMoved", "MoveEndpoint",
		fmt.Sprintf("Moved the endpoint's address from node %s to node %s", node.Name, is.to))
	return &vacatingError{is.waits}
}

// vacancy is the next step for the address before a machine is deleted.
type vacancy struct {
	// to is the node to move the address to; empty for none.
	to string
	// waits is why the machine has to wait, for users; empty if it may be
	// deleted.
	waits string
}

// vacancyOf decides the next step before the machine of a node is deleted.
// tried are the nodes that the address was moved to meanwhile.
func vacancyOf(s *scope, node string, tried sets.Set[string]) vacancy {
	at := s.tenant.Endpoint
	if at.Holder != node {
		switch {
		case at.Settled:
			return vacancy{}
		case !at.Unheard:
			// The previous holder of the address may be the machine to be
			// deleted.
			return vacancy{waits: takes(at.Holder)}
		case at.Before != node:
			// A lease that is not renewed, for instance a leftover.
			return vacancy{}
		}
	}
	to, without := heir(s, node, tried.Union(sets.New(at.Holder)))
	switch {
	case to != "":
		return vacancy{to: to, waits: takes(to)}
	case len(without) == 0 || s.controlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP:
		return vacancy{}
	}
	return vacancy{waits: fmt.Sprintf("Waiting for kube-vip on another machine to take the endpoint's address from node %s: kube-vip does not run on %s. "+
		"The machine is deleted nevertheless after %.0f minutes, and the endpoint may then be unreachable", node, shorten(without), vacateBound.Minutes())}
}

// takes returns the message for a node that has to take the address.
func takes(node string) string {
	return fmt.Sprintf("Waiting for node %s to take the endpoint's address", node)
}

// lives reports whether a machine's host responds: its kubelet, or its API
// server while the kubelet does not.
func lives(s *scope, machine *clusterv1.Machine, node *Node) bool {
	return node.Ready || s.tenant.Serving.Has(machine.Name)
}

// heir returns a node to move the address to, of a machine that is not being
// deleted: one that is ready and runs all components, or else one whose kubelet
// does not respond and whose API server is ready. If there is none, without are
// the nodes on which kube-vip does not run or did not take the address, unless
// another node may take it by itself.
func heir(s *scope, but string, tried sets.Set[string]) (to string, without []string) {
	byItself := false
	for _, machine := range s.sorted() {
		node := nodeOf(machine, s.tenant.Nodes)
		if !machine.DeletionTimestamp.IsZero() || node == nil || node.Name == but || !lives(s, machine, node) {
			continue
		}
		kubeVIP, known := kubeVIPOf(s, machine, node)
		switch {
		case tried.Has(node.Name), node.Ready && known && kubeVIP.State != Running:
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
