package machine

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// hostManager owns one label of Machines and nothing else.
const hostManager = "nova-hypervisor-host"

// markHost tells the Machine, and through it the node, which host its VM runs
// on. Somebody else who claims the label keeps it: two who force a field would
// fight for ever.
func (r *Reconciler[M]) markHost(ctx context.Context, s *scope[M]) error {
	value := labelValue(s.vm.Host)
	if value == "" || s.machine == nil || s.machine.Labels[infrav1.HostLabel] == value {
		return nil
	}
	mark := &unstructured.Unstructured{}
	mark.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	mark.SetNamespace(s.machine.Namespace)
	mark.SetName(s.machine.Name)
	mark.SetUID(s.machine.UID) // one that is gone is not made again
	mark.SetLabels(map[string]string{infrav1.HostLabel: value})
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(mark), client.FieldOwner(hostManager))
	if onlyRestored(err) {
		err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(mark), client.FieldOwner(hostManager), client.ForceOwnership)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		ctrl.LoggerFrom(ctx).V(2).Info("The Machine is gone, or somebody else sets its host label", "cause", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("labelling Machine: %w", err)
	}
	return nil
}

// onlyRestored reports whether err is a conflict with nobody but clusterctl.
// That makes all fields of what it restores from a folder its own and never
// writes them again: nobody is there to fight, and the label would tell for
// ever where the VM was when it was copied.
func onlyRestored(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsConflict(err) || status.ErrStatus.Details == nil {
		return false
	}
	causes := status.ErrStatus.Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		// Only the message names the manager.
		return c.Type != metav1.CauseTypeFieldManagerConflict || !strings.HasPrefix(c.Message, `conflict with "clusterctl"`)
	})
}

var notInLabels = regexp.MustCompile(`[^-A-Za-z0-9_.]+`)

// labelValue returns name as the value of a label can be: an address loses its
// colons, and what is too long its end.
func labelValue(name string) string {
	value := notInLabels.ReplaceAllString(name, "-")
	value = value[:min(len(value), validation.LabelValueMaxLength)]
	return strings.Trim(value, "-_.")
}
