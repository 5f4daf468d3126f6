package authorities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// Difference is the difference of a machine whose CAs are of another stage.
const Difference = "authorities"

// Keeper rotates the CAs of clusters.
type Keeper struct{ *scope.Config }

// Observe reads the state of the CAs, and adds the control plane machines that have
// another one to those that differ.
func (r *Keeper) Observe(ctx context.Context, s *scope.Scope) error {
	if !s.Initialized || r.Rotator == nil || s.Cluster == nil {
		return nil
	}
	state, err := r.Rotator.Rotation(ctx, s.Key())
	if err != nil {
		// The certificates are checked after this, which reports it.
		return nil //nolint:nilerr // as above
	}
	s.Rotation.State = state
	if state.ID == "" {
		return nil
	}
	for _, machine := range s.Machines {
		node := facts.NodeOf(machine, s.Workload.Nodes)
		if node == nil || node.Authorities == state.ID {
			continue
		}
		s.Differs[machine.Name] = append(s.Differs[machine.Name], Difference)
		if s.ControlPlane.Spec.Rollout.GetInPlace() == bootstrapv1.InPlaceNever {
			s.NeedReplacement[machine.Name] = append(s.NeedReplacement[machine.Name], Difference)
		}
	}
	return nil
}

// Rotate carries out the step that is due. While workers have another state, it lets them
// be changed in place or replaced.
func (r *Keeper) Rotate(ctx context.Context, s *scope.Scope) error {
	after, now := s.ControlPlane.Spec.Rollout.GetAuthoritiesAfter(), r.CurrentTime()
	if s.Rotation.State == nil || s.Rotation.State.ID == "" && after.IsZero() {
		return nil
	}
	if after.After(now) {
		s.RequeueAfter(after.Sub(now))
	}
	machines := &clusterv1.MachineList{}
	if s.Rotation.State.ID != "" {
		// Without a cache, because the next step depends on it.
		if err := r.APIReader.List(ctx, machines, s.InCluster()...); err != nil {
			return fmt.Errorf("listing Machines: %w", err)
		}
		s.Rotation.Waits = waits(s, machines.Items)
	}
	stage, step := decide(s.Rotation.State, after, now, len(s.Rotation.Waits) == 0)
	if step != "" {
		return r.carryOut(ctx, s, step)
	}
	s.Rotation.Stage = stage
	if stage == controlplanev1.AuthoritiesRotatedReason {
		return nil
	}
	s.RequeueAfter(timelimits.LongPoll)
	return r.rollOut(ctx, s, machines.Items)
}

// carryOut carries out a step. The next reconcile reads its result.
func (r *Keeper) carryOut(ctx context.Context, s *scope.Scope, step pki.RotationStep) error {
	err := r.Rotator.Rotate(ctx, s.Key(), step, s.ControlPlane.Spec.Platform.GetCACertificateValidity())
	if refused, is := errors.AsType[*pki.RotationRefusedError](err); is {
		s.Rotation.Stage, s.Rotation.Waits = controlplanev1.AuthoritiesRefusedReason, []string{reconcile.Sentence(refused)}
		if c := conditions.Get(s.ControlPlane, controlplanev1.AuthoritiesRotatedCondition); c == nil || c.Reason != controlplanev1.AuthoritiesRefusedReason {
			r.Event(s, corev1.EventTypeWarning, controlplanev1.AuthoritiesRefusedReason, "RotateAuthorities", reconcile.Sentence(refused))
		}
		return nil
	}
	if err != nil {
		if reason := pki.VaultReason(err); reason != "" {
			s.Rotation.Stage, s.Rotation.Waits = reason, []string{reconcile.Sentence(err)}
			r.Warn(s, reason, "RotateAuthorities", err)
		}
		return fmt.Errorf("rotating CAs: %w", err)
	}
	r.Event(s, corev1.EventTypeNormal, string(step), "RotateAuthorities", stepText[step])
	s.RequeueAfter(timelimits.NextAction)
	s.Rotation.Stage, s.Rotation.Waits = stageAfter[step], nil
	return nil
}

// stageAfter is the reason of the condition after a step.
var stageAfter = map[pki.RotationStep]string{
	pki.AddAuthorities:    controlplanev1.AuthoritiesTrustingBothReason,
	pki.SwapAuthorities:   controlplanev1.AuthoritiesIssuingNewReason,
	pki.UnswapAuthorities: controlplanev1.AuthoritiesAbortingReason,
	pki.DropAuthorities:   controlplanev1.AuthoritiesTrustingNewReason,
}

// stepText describes steps in events.
var stepText = map[pki.RotationStep]string{
	pki.AddAuthorities:    "Made new CAs, which machines trust beside the former ones from now on",
	pki.SwapAuthorities:   "All machines trust both CAs: the new ones sign from now on",
	pki.UnswapAuthorities: "The rotation was aborted: the former CAs sign again from now on",
	pki.DropAuthorities:   "All machines have certificates of the CAs that sign: the others are not trusted any more",
}

// waits returns the nodes and machines that have not the current state, or of which that
// is unknown.
func waits(s *scope.Scope, machines []clusterv1.Machine) []string {
	if !s.Workload.Answers {
		return []string{"the workload cluster, which does not respond"}
	}
	var names []string
	hasMachine := map[string]bool{}
	for i := range machines {
		node := facts.NodeOf(&machines[i], s.Workload.Nodes)
		if node == nil {
			names = append(names, "machine "+machines[i].Name)
			continue
		}
		hasMachine[node.Name] = true
	}
	for _, node := range s.Workload.Nodes {
		switch {
		case node.Authorities == s.Rotation.State.ID:
		case hasMachine[node.Name]:
			names = append(names, "node "+node.Name)
		default:
			// Cluster API deletes the Node of a deleted Machine for a limited time only.
			names = append(names, "node "+node.Name+" (without a Machine)")
		}
	}
	slices.Sort(names)
	return names
}

// Condition is the condition AuthoritiesRotated; it has no type if the CAs were never
// rotated and are not to be.
func Condition(s *scope.Scope) metav1.Condition {
	if s.Rotation.Stage == "" {
		if s.ControlPlane.Spec.Rollout.AuthoritiesAfter == nil && s.Rotation.State != nil && s.Rotation.State.ID == "" {
			conditions.Delete(s.ControlPlane, controlplanev1.AuthoritiesRotatedCondition)
		}
		return metav1.Condition{}
	}
	c := metav1.Condition{Type: controlplanev1.AuthoritiesRotatedCondition, Status: metav1.ConditionFalse, Reason: s.Rotation.Stage}
	switch c.Reason {
	case controlplanev1.AuthoritiesRotatedReason:
		c.Status = metav1.ConditionTrue
		if s.Rotation.State.Moves {
			c.Message = "The keys of the CAs are in Secrets: set rollout.authoritiesAfter to a time after the CAs were made to have CAs of the StarVault"
		}
	default:
		text, isStage := stageText[c.Reason]
		switch {
		case !isStage: // the reason of a step that failed
			c.Message = strings.Join(s.Rotation.Waits, "; ")
		case len(s.Rotation.Waits) > 0:
			c.Message = text + ": waiting for " + plan.Shorten(s.Rotation.Waits)
		default:
			c.Message = text
		}
	}
	return c
}

// stageText describes stages in the condition.
var stageText = map[string]string{
	controlplanev1.AuthoritiesTrustingBothReason: "Stage 2 of 5: machines get the certificates of the new CAs beside those of the former ones",
	controlplanev1.AuthoritiesIssuingNewReason:   "Stages 3 and 4 of 5: machines get certificates that the new CAs have signed",
	controlplanev1.AuthoritiesTrustingNewReason:  "Stage 5 of 5: machines lose the certificates of the former CAs",
	controlplanev1.AuthoritiesAbortingReason:     "The rotation is aborted: machines get certificates that the former CAs have signed, and lose those of the new ones",
}
