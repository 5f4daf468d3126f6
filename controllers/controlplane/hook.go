package controlplane

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// recordJoined records on a machine that it was a member of etcd.
func (r *Config) recordJoined(ctx context.Context, machine *clusterv1.Machine) error {
	if _, noted := machine.Annotations[controlplanev1.JoinedAnnotation]; noted {
		return nil
	}
	if err := r.annotate(ctx, machine, func(annotations map[string]string) {
		annotations[controlplanev1.JoinedAnnotation] = ""
	}); err != nil {
		return fmt.Errorf("recording that machine %s was a member of etcd: %w", machine.Name, err)
	}
	return nil
}

// releaseHook removes the hook, so that Cluster API continues the deletion of a
// machine. A deleted machine needs no release.
func (r *Config) releaseHook(ctx context.Context, machine *clusterv1.Machine) error {
	if _, held := machine.Annotations[controlplanev1.MachineHookAnnotation]; !held {
		return nil
	}
	err := r.annotate(ctx, machine, func(annotations map[string]string) {
		delete(annotations, controlplanev1.MachineHookAnnotation)
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing machine %s: %w", machine.Name, err)
	}
	return nil
}
