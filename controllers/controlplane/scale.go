package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/storage/names"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/failuredomains"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// cleanUpTimeout bounds taking back what was made for a machine whose creation
// failed. What is left then is an orphan, which the next reconcile finds.
const cleanUpTimeout = 10 * time.Second

// scale creates the machines that are missing, all at once: while the first
// initialises the cluster, the others boot and wait for it.
func (r *Reconciler) scale(ctx context.Context, s *scope) error {
	if err := r.deleteOrphans(ctx, s); err != nil {
		return err
	}
	if len(missing(ctx, s, s.machines)) == 0 {
		return nil
	}
	if s.blocked = hold(s); s.blocked != "" {
		return nil
	}
	// The cache may not know yet what the last reconcile created.
	live, err := r.ownedMachines(ctx, r.APIReader, s)
	if err != nil {
		return err
	}
	for _, domain := range missing(ctx, s, live) {
		machine, err := r.create(ctx, s, domain)
		if err != nil {
			r.event(s, corev1.EventTypeWarning, "MachineCreationFailed", "ScaleUp", err.Error())
			return fmt.Errorf("creating machine: %w", err)
		}
		s.machines.Insert(machine)
		machinesCreated.Inc()
		r.event(s, corev1.EventTypeNormal, "MachineCreated", "ScaleUp", "Created Machine "+machine.Name)
	}
	return nil
}

// missing returns the failure domain of each machine that is to be created.
// Nobody is ever to be deleted: too many machines are none missing.
func missing(ctx context.Context, s *scope, machines collections.Machines) []string {
	var usable []clusterv1.FailureDomain
	for _, domain := range s.cluster.Status.FailureDomains {
		if domain.ControlPlane != nil && *domain.ControlPlane {
			usable = append(usable, domain)
		}
	}
	all := collections.FromMachines(machines.UnsortedList()...)
	current := machines.Filter(collections.Not(collections.HasDeletionTimestamp), func(m *clusterv1.Machine) bool {
		return len(s.outdated[m.Name]) == 0
	})
	var domains []string
	for i := len(machines); i < int(s.controlPlane.GetReplicas()); i++ {
		domain := failuredomains.PickFewest(ctx, usable, all, current)
		domains = append(domains, domain)
		placed := &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("/%d", i)},
			Spec:       clusterv1.MachineSpec{FailureDomain: domain},
		}
		all.Insert(placed)
		current.Insert(placed)
	}
	return domains
}

// hold says why no machine may join now. Before the cluster is initialised
// nothing can be harmed; after that etcd must be whole, because a newcomer
// raises the number of members that a majority needs, and kubeadm asks each
// listed member before it joins.
func hold(s *scope) string {
	if !s.initialized {
		return ""
	}
	for _, machine := range s.sorted() {
		if !machine.DeletionTimestamp.IsZero() {
			return fmt.Sprintf("Machine %s is being deleted", machine.Name)
		}
	}
	switch {
	case !s.tenant.Answers:
		return "the API server does not answer"
	case s.tenant.Etcd == nil:
		return "etcd could not be asked"
	}
	if foreign := s.tenant.Etcd.Foreign(memberNames(s)); len(foreign) > 0 {
		return fmt.Sprintf("etcd still lists %s, which belongs to no machine and still runs, or which etcd cannot spare: remove it with etcdctl first",
			strings.Join(foreign, ", "))
	}
	for _, member := range s.tenant.Etcd.Members {
		if member.Name != "" && !member.Learner && !member.Answers {
			return fmt.Sprintf("etcd member %s does not answer", member.Name)
		}
	}
	return ""
}

// memberNames are the names that etcd members may have: those of nodes and of
// machines whose node is not known yet.
func memberNames(s *scope) []string {
	var known []string
	for _, machine := range s.machines {
		known = append(known, machine.Name)
		if machine.Status.NodeRef.IsDefined() {
			known = append(known, machine.Status.NodeRef.Name)
		}
		if node := nodeOf(machine, s.tenant.Nodes); node != nil {
			known = append(known, node.Name)
		}
	}
	return known
}

// create makes a machine: first what it refers to, then the Machine. A crash
// in between leaves orphans, which deleteOrphans takes away.
func (r *Reconciler) create(ctx context.Context, s *scope, domain string) (_ *clusterv1.Machine, reterr error) {
	name := names.SimpleNameGenerator.GenerateName(s.controlPlane.Name + "-")
	var made []client.Object
	defer func() {
		if reterr != nil {
			reterr = &creationError{err: errors.Join(reterr, r.takeBack(ctx, made)), name: name, controlPlane: s.controlPlane.Name}
		}
	}()
	infra, err := r.desiredInfra(ctx, s, name)
	if err != nil {
		return nil, err
	}
	config := desiredConfig(s, name)
	settings, err := encodeSettings(s.controlPlane)
	if err != nil {
		return nil, err
	}
	machine := desiredMachine(s, &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.controlPlane.Namespace, Name: name,
			Annotations: map[string]string{controlplanev1.SettingsAnnotation: settings},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       s.clusterName,
			Bootstrap:         clusterv1.Bootstrap{ConfigRef: reference(config)},
			InfrastructureRef: reference(infra),
			Version:           s.controlPlane.Spec.Version,
			FailureDomain:     domain,
		},
	})
	for _, child := range []client.Object{infra, config, machine} {
		// An answer that was lost may hide a success, so it counts as made.
		made = append(made, child)
		if err := r.apply(ctx, fieldManager, child, nil); err != nil {
			return nil, err
		}
	}
	ctrl.LoggerFrom(ctx).Info("Created machine", "Machine", name, "failureDomain", domain)
	return machine, nil
}

// creationError says why a machine was not created, in words that stay the
// same from try to try: each try takes another name.
type creationError struct {
	err                error
	name, controlPlane string
}

// Error implements error.
func (e *creationError) Error() string {
	return strings.ReplaceAll(e.err.Error(), e.name, e.controlPlane+"-*")
}

// Unwrap lets the cause be found.
func (e *creationError) Unwrap() error { return e.err }

// desiredInfra is the infrastructure machine of a new machine.
func (r *Reconciler) desiredInfra(ctx context.Context, s *scope, name string) (*unstructured.Unstructured, error) {
	ref := s.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, s.controlPlane.Namespace)
	if err != nil {
		if apierrors.IsNotFound(err) {
			s.blocked = fmt.Sprintf("%s %s does not exist", ref.Kind, ref.Name)
		}
		return nil, fmt.Errorf("reading infrastructure template: %w", err)
	}
	parent := s.parent()
	infra, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: template,
		TemplateRef: &corev1.ObjectReference{
			APIVersion: template.GetAPIVersion(), Kind: ref.Kind, Namespace: s.controlPlane.Namespace, Name: ref.Name,
		},
		Namespace:   s.controlPlane.Namespace,
		Name:        name,
		ClusterName: s.clusterName,
		OwnerRef:    &parent,
		Labels:      identity(s),
	})
	if err != nil {
		return nil, fmt.Errorf("making infrastructure machine from template: %w", err)
	}
	return infra, nil
}

// takeBack deletes what was made for a machine that is not to be, the Machine
// first: if that one stays, so does what it refers to.
func (r *Reconciler) takeBack(ctx context.Context, made []client.Object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	for _, o := range slices.Backward(made) {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, o)); err != nil {
			return fmt.Errorf("taking back %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// reference returns a reference to o.
func reference(o client.Object) clusterv1.ContractVersionedObjectReference {
	gvk := o.GetObjectKind().GroupVersionKind()
	return clusterv1.ContractVersionedObjectReference{APIGroup: gvk.Group, Kind: gvk.Kind, Name: o.GetName()}
}
