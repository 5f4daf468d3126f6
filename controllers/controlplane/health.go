package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/status"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
)

// machineReporter reports on the machines of a control plane.
type machineReporter struct{ *scope.Config }

// machineHealth are the conditions of a machine about the components on its
// node.
var machineHealth = patch.WithOwnedConditions{Conditions: []string{
	controlplanev1.MachineAPIServerPodHealthyCondition,
	controlplanev1.MachineControllerManagerPodHealthyCondition,
	controlplanev1.MachineSchedulerPodHealthyCondition,
	controlplanev1.MachineEtcdPodHealthyCondition,
	controlplanev1.MachineEtcdMemberHealthyCondition,
	controlplanev1.MachineKubeVIPPodHealthyCondition,
}}

// reportHealth sets the health conditions and the certificate expiry of each
// machine.
func (r *machineReporter) reportHealth(ctx context.Context, s *scope.Scope) error {
	if !s.Initialized || s.Workload.Pending {
		return nil
	}
	var errs []error
	for _, machine := range s.Sorted() {
		errs = append(errs, r.reportMachineHealth(ctx, s, machine), r.recordExpiry(ctx, s, machine))
	}
	return errors.Join(errs...)
}

func (r *machineReporter) reportMachineHealth(ctx context.Context, s *scope.Scope, machine *clusterv1.Machine) error {
	before := machine.DeepCopy()
	for _, c := range status.MachineHealth(s, machine) {
		conditions.Set(machine, c)
	}
	if s.ControlPlane.Spec.Endpoint.GetProvider() != controlplanev1.EndpointProviderKubeVIP {
		conditions.Delete(machine, controlplanev1.MachineKubeVIPPodHealthyCondition)
	}
	if scope.SameConditions(before, machine) {
		return nil
	}
	p, err := patch.NewHelper(before, r.Client)
	if err != nil {
		return fmt.Errorf("preparing patch: %w", err)
	}
	if err := scope.WithoutGone(p.Patch(ctx, machine, machineHealth)); err != nil {
		return fmt.Errorf("reporting on machine %s: %w", machine.Name, err)
	}
	return nil
}

// recordExpiry records when the machine's certificates expire, in the annotation
// that Cluster API reads.
func (r *machineReporter) recordExpiry(ctx context.Context, s *scope.Scope, machine *clusterv1.Machine) error {
	node, config := facts.NodeOf(machine, s.Workload.Nodes), s.Configs[machine.Name]
	if node == nil || node.CertificatesExpire.IsZero() || config == nil || !config.DeletionTimestamp.IsZero() {
		return nil
	}
	expires := node.CertificatesExpire.UTC().Format(time.RFC3339)
	if config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] == expires {
		return nil
	}
	was := config.DeepCopy()
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation] = expires
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, config, client.MergeFrom(was))); err != nil {
		return fmt.Errorf("recording when the certificates of machine %s expire: %w", machine.Name, err)
	}
	return nil
}

// reportMachines reports the decision on each machine: why its deletion waits,
// and the progress of its remediation.
func (r *machineReporter) reportMachines(ctx context.Context, s *scope.Scope) error {
	if s.Initialized && s.Workload.Pending {
		// The workload cluster was not probed yet; the conditions stay
		// unchanged.
		return nil
	}
	in := input.Of(s, r.CurrentTime())
	for _, seen := range in.Machines {
		machine := s.Machines[seen.Name]
		before := machine.DeepCopy()
		status.ReportMachine(s, in, seen, machine)
		if scope.SameConditions(before, machine) {
			continue
		}
		if err := r.PatchConditions(ctx, before, machine); err != nil {
			return err
		}
	}
	return nil
}
