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

// hostManager is the field manager that owns one label of Machines and nothing else.
const hostManager = "nova-hypervisor-host"

// labelHost sets the label with the VM's host on the Machine, from which Cluster API copies it to the
// node. If another manager owns the label, that manager keeps it: two managers that force a field
// would overwrite each other indefinitely.
func labelHost(ctx context.Context, c client.Client, machine *clusterv1.Machine, host string) error {
	value := labelValue(host)
	if value == "" || machine == nil || machine.Labels[infrav1.HostLabel] == value {
		return nil
	}
	labeled := &unstructured.Unstructured{}
	labeled.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	labeled.SetNamespace(machine.Namespace)
	labeled.SetName(machine.Name)
	labeled.SetUID(machine.UID) // a deleted Machine is not recreated
	labeled.SetLabels(map[string]string{infrav1.HostLabel: value})
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(labeled), client.FieldOwner(hostManager))
	if onlyClusterctlConflict(err) {
		err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(labeled), client.FieldOwner(hostManager), client.ForceOwnership)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		ctrl.LoggerFrom(ctx).V(2).Info("The Machine does not exist, or another field manager owns its host label", "cause", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("labeling Machine: %w", err)
	}
	return nil
}

// onlyClusterctlConflict reports whether err is a conflict with clusterctl alone. When clusterctl
// restores objects from a folder, it becomes the owner of all their fields and never writes them
// again. So no manager competes for the label, and without force it would show the host at the time of
// the backup indefinitely.
func onlyClusterctlConflict(err error) bool {
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

// labelValue converts name to a valid label value: it replaces the colons of an address and truncates
// a long name.
func labelValue(name string) string {
	value := notInLabels.ReplaceAllString(name, "-")
	value = value[:min(len(value), validation.LabelValueMaxLength)]
	return strings.Trim(value, "-_.")
}
