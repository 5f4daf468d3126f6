package scope

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// RecordJoined records on a machine that it was a member of etcd.
func (r *Config) RecordJoined(ctx context.Context, machine *clusterv1.Machine) error {
	if _, noted := machine.Annotations[controlplanev1.JoinedAnnotation]; noted {
		return nil
	}
	if err := r.Annotate(ctx, machine, func(annotations map[string]string) {
		annotations[controlplanev1.JoinedAnnotation] = ""
	}); err != nil {
		return fmt.Errorf("recording that machine %s was a member of etcd: %w", machine.Name, err)
	}
	return nil
}

// ReleaseHook removes the hook, so that Cluster API continues the deletion of a
// machine. A deleted machine needs no release.
func (r *Config) ReleaseHook(ctx context.Context, machine *clusterv1.Machine) error {
	if _, held := machine.Annotations[controlplanev1.MachineHookAnnotation]; !held {
		return nil
	}
	err := r.Annotate(ctx, machine, func(annotations map[string]string) {
		delete(annotations, controlplanev1.MachineHookAnnotation)
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing machine %s: %w", machine.Name, err)
	}
	return nil
}
