package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/authorities"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/plan"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/upgrade"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/uptodate"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/resize"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
)

// observer reads the state that the other parts use.
type observer struct {
	*scope.Config

	leaderTransfers leaderTransfers
	// endpointMoves are the moves of the endpoint's address off machines to be
	// deleted, by machine. After a restart all moves are tried again, which only
	// costs time.
	endpointMoves reconcile.Memory[moveKey, plan.EndpointMove]
	// observedNodes are the last observations of Machines and nodes.
	observedNodes   observedNodes
	authorityKeeper *authorities.Keeper
}

// moveKey is a machine of a control plane.
type moveKey struct {
	controlPlane client.ObjectKey
	machine      types.UID
}

func moveKeyOf(s *scope.Scope, machine *clusterv1.Machine) moveKey {
	return moveKey{controlPlane: client.ObjectKeyFromObject(s.ControlPlane), machine: machine.UID}
}

// forgetMoves forgets the moves of machines that the control plane does not have
// any more.
func (r *observer) forgetMoves(controlPlane client.ObjectKey, machines collections.Machines) {
	uids := sets.New[types.UID]()
	for _, machine := range machines {
		uids.Insert(machine.UID)
	}
	r.endpointMoves.ForgetIf(func(k moveKey, _ plan.EndpointMove) bool {
		return k.controlPlane == controlPlane && !uids.Has(k.machine)
	})
}

// observe reads the state into the scope. It changes nothing.
func (r *observer) observe(ctx context.Context, s *scope.Scope) error {
	restores, err := listRestores(ctx, r.Client, s)
	if err != nil {
		restoresUnknown(s, err)
	}
	if s.Machines, err = machinesBeside(ctx, r.Client, s, restores); err != nil {
		return err
	}
	r.forgetMoves(client.ObjectKeyFromObject(s.ControlPlane), s.Machines)
	s.Infra = map[string]*metav1.PartialObjectMetadata{}
	s.Configs = map[string]*bootstrapv1.NovaConfig{}
	s.EndpointMoves = map[string]plan.EndpointMove{}
	s.Differs, s.Altered = map[string][]string{}, map[string][]string{}
	s.NeedReplacement = map[string][]string{}
	s.At, s.Lifetime = r.CurrentTime(), certificateLifetime(s)
	s.TransferFailed = r.leaderTransfers.members(s.ControlPlane.UID)
	if s.Initialized, err = r.knownInitialized(ctx, s); err != nil {
		return err
	}
	for _, machine := range s.Machines {
		if err := r.observeMachine(ctx, s, machine); err != nil {
			return err
		}
	}
	if err := r.observeLock(ctx, s); err != nil {
		return err
	}
	if s.Cluster != nil && s.ControlPlane.DeletionTimestamp.IsZero() {
		s.Workload = r.WorkloadClusters.Observe(ctx, s.Key(), s.Sorted())
		if s.InGrace = r.observedNodes.note(s, s.At); len(s.InGrace) > 0 {
			s.RequeueAfter(time.Minute)
		}
		if s.Initialized || booted(s) || !s.Workload.Pending {
			// Before a machine has booted nothing depends on the workload
			// cluster.
			s.RequeueAfter(s.Workload.Again)
		}
	}
	return r.authorityKeeper.Observe(ctx, s)
}

// booted reports whether a machine may have started with bootstrap data: the
// workload cluster may then exist.
func booted(s *scope.Scope) bool {
	return slices.ContainsFunc(s.Sorted(), func(m *clusterv1.Machine) bool { return m.Spec.Bootstrap.DataSecretName != nil })
}

// observeMachine reads the objects of one machine. A missing object is not an
// error: a machine that is being deleted outlives its objects for a moment.
func (r *observer) observeMachine(ctx context.Context, s *scope.Scope, machine *clusterv1.Machine) error {
	infra, err := r.InfraMetadata(ctx, machine)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading infrastructure machine of %s: %w", machine.Name, err)
	}
	if err == nil {
		s.Infra[machine.Name] = infra
	}
	config := &bootstrapv1.NovaConfig{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, config)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading NovaConfig of %s: %w", machine.Name, err)
	}
	if err == nil {
		s.Configs[machine.Name] = config
	}
	s.EndpointMoves[machine.Name], _ = r.endpointMoves.Get(moveKeyOf(s, machine))
	infra, config = s.Infra[machine.Name], s.Configs[machine.Name]
	delete(s.Differs, machine.Name)
	delete(s.NeedReplacement, machine.Name)
	if diff := uptodate.Differences(s.ControlPlane, machine, infra, config, s.Initialized); len(diff) > 0 {
		s.Differs[machine.Name] = diff
		hardware, err := r.compareHardware(ctx, s, infra, diff)
		if err != nil {
			return fmt.Errorf("comparing infrastructure machine of %s: %w", machine.Name, err)
		}
		if s.NeedReplacement[machine.Name], err = uptodate.NeedReplacement(s.ControlPlane, machine, config, hardware, diff); err != nil {
			return fmt.Errorf("comparing machine %s: %w", machine.Name, err)
		}
	}
	if altered := uptodate.Alterations(machine, infra, config); len(altered) > 0 && !scope.Updating(machine) {
		s.Altered[machine.Name] = altered
	}
	return nil
}

// compareHardware compares an infrastructure machine with the template, if the machine
// was created from another one and can be changed in place.
func (r *observer) compareHardware(ctx context.Context, s *scope.Scope, infra *metav1.PartialObjectMetadata, differences []string) (uptodate.Hardware, error) {
	if infra == nil || s.ControlPlane.Spec.Rollout.GetInPlace() == bootstrapv1.InPlaceNever || !uptodate.OtherTemplate(differences) {
		return uptodate.Hardware{}, nil
	}
	current, desired, err := readHardware(ctx, r.Client, s.ControlPlane, infra)
	if err != nil || desired == nil {
		return uptodate.Hardware{}, client.IgnoreNotFound(err)
	}
	machine := resize.Read(current)
	return uptodate.Hardware{Compared: true, Replaced: resize.Compare(machine.Spec, desired, []resize.Machine{machine})}, nil
}

// readHardware returns an infrastructure machine, and the spec that it has to get by the
// template; nil if the template makes another kind of machine.
func readHardware(ctx context.Context, c client.Client, controlPlane *controlplanev1.NovaControlPlane, infra *metav1.PartialObjectMetadata) (current *unstructured.Unstructured, desired map[string]any, err error) {
	current = &unstructured.Unstructured{}
	current.SetGroupVersionKind(infra.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(infra), current); err != nil {
		return nil, nil, fmt.Errorf("reading infrastructure machine: %w", err)
	}
	template, err := external.GetObjectFromContractVersionedRef(ctx, c, controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef, controlPlane.Namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("reading infrastructure template: %w", err)
	}
	if template.GroupVersionKind() != current.GroupVersionKind().GroupVersion().WithKind(current.GetKind()+clusterv1.TemplateSuffix) {
		return current, nil, nil
	}
	if desired, _, err = unstructured.NestedMap(template.Object, "spec", "template", "spec"); err != nil {
		return nil, nil, fmt.Errorf("reading infrastructure template: %w", err)
	}
	if id, found, _ := unstructured.NestedString(current.Object, "spec", "providerID"); found {
		desired["providerID"] = id // the template has none
	}
	return current, desired, nil
}

// ownedMachines lists the machines of the control plane, and records those that
// other controllers own.
func (r *observer) ownedMachines(ctx context.Context, c client.Reader, s *scope.Scope) (collections.Machines, error) {
	restores, err := listRestores(ctx, c, s)
	if err != nil {
		return nil, err
	}
	return machinesBeside(ctx, c, s, restores)
}

// machinesBeside lists the machines of the control plane. A machine that one of
// the restores fences does not count once it is being deleted: its VM may not be
// deletable for long. Only the deletion of the control plane waits for it.
func machinesBeside(ctx context.Context, c client.Reader, s *scope.Scope, restores []controlplanev1.NovaEtcdRestore) (collections.Machines, error) {
	list := &clusterv1.MachineList{}
	if err := c.List(ctx, list, client.InNamespace(s.ControlPlane.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel},
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.ClusterName}); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	fenced := fencedMachines(s, restores)
	s.OtherMachines = sets.Set[string]{}
	return collections.FromMachineList(list).Filter(func(m *clusterv1.Machine) bool {
		if fenced.Has(m.Name) && released(m) && s.ControlPlane.DeletionTimestamp.IsZero() {
			return false
		}
		ours := metav1.IsControlledBy(m, s.ControlPlane) || ownerless(m, s.ControlPlane)
		if !ours {
			s.OtherMachines.Insert(m.Name)
		}
		return ours
	}), nil
}

// released reports whether a machine is being deleted without our hook.
func released(m *clusterv1.Machine) bool {
	_, hooked := m.Annotations[controlplanev1.MachineHookAnnotation]
	return !m.DeletionTimestamp.IsZero() && !hooked
}

// knownInitialized reports whether the initialization is recorded. The status
// does not survive a move to another management cluster, the lock does.
func (r *observer) knownInitialized(ctx context.Context, s *scope.Scope) (bool, error) {
	if done := s.ControlPlane.Status.Initialization.ControlPlaneInitialized; done != nil && *done {
		return true, nil
	}
	done, err := initlock.Initialized(ctx, r.Client, s.Key())
	if err != nil {
		return false, fmt.Errorf("reading whether the cluster was initialized: %w", err)
	}
	return done, nil
}

// ownedBy reports whether o has an owner reference to the control plane.
func ownedBy(o client.Object, controlPlane *controlplanev1.NovaControlPlane) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == controlPlane.UID })
}

// observeLock reads which machine holds the init lock.
func (r *observer) observeLock(ctx context.Context, s *scope.Scope) (err error) {
	if s.Cluster == nil {
		return nil
	}
	if s.Lock, err = initlock.Observe(ctx, r.Client, s.Cluster); err != nil {
		return fmt.Errorf("reading the init lock: %w", err)
	}
	return nil
}

// observeRoles reads the roles of machines in their bootstrap data, which may
// be stored before the Machine references it.
func (r *observer) observeRoles(ctx context.Context, s *scope.Scope) error {
	s.Roles = map[string]plan.Role{}
	for _, machine := range s.Machines {
		name := machine.Spec.Bootstrap.ConfigRef.Name
		data := &corev1.Secret{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: name}, data)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading bootstrap data of %s: %w", machine.Name, err)
		}
		s.Roles[machine.Name] = input.BootstrapRole(data.Annotations[bootstrapv1.ModeAnnotation])
	}
	return nil
}

// readUncached reads the input of a decision again from the API servers,
// including the workload cluster's if it may be initialized without that being
// recorded.
func (r *observer) readUncached(ctx context.Context, s *scope.Scope, d plan.Decision) error {
	var err error
	if s.Machines, err = r.ownedMachines(ctx, r.APIReader, s); err != nil {
		return err
	}
	if d.Action == plan.CreateForRestore {
		s.Workload = r.WorkloadClusters.Fresh(ctx, s.Key(), s.Sorted())
	}
	switch d.Upkeep {
	case plan.KeepNothing:
		return nil
	case plan.KeepAll:
		if err := r.readMachines(ctx, s); err != nil {
			return err
		}
	case plan.KeepOwners, plan.KeepCertificates, plan.KeepKubeconfig:
	}
	return r.observeRestore(ctx, s, r.APIReader)
}

// readMachines reads the facts about machines and the workload cluster without
// caches.
func (r *observer) readMachines(ctx context.Context, s *scope.Scope) error {
	for _, machine := range s.Machines {
		if err := r.observeMachine(ctx, s, machine); err != nil {
			return err
		}
	}
	if err := r.observeLock(ctx, s); err != nil {
		return err
	}
	if s.Initialized || booted(s) {
		s.Workload = r.WorkloadClusters.Fresh(ctx, s.Key(), s.Sorted())
		s.RequeueAfter(s.Workload.Again)
	}
	if s.Initialized {
		return r.authorityKeeper.Observe(ctx, s)
	}
	// The cluster may have been initialized while the controller was down: the
	// action could delete it.
	if err := r.initialization(ctx, s); err != nil {
		return err
	}
	return r.observeRoles(ctx, s)
}

// certificateLifetime returns the lifetime of the certificates of a new
// machine. It renders the configuration, so it does that only if the spec needs
// it.
func certificateLifetime(s *scope.Scope) time.Duration {
	if s.Cluster == nil || s.ControlPlane.Spec.Rollout.Before.GetWindow() == 0 {
		return 0
	}
	want, err := upgrade.Desired(s)
	if err != nil {
		return kubeadm.CertificateLifetime(nil) // upgrade.Upgrader reports the error.
	}
	return kubeadm.CertificateLifetime(want.Configuration)
}
