package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// upgradeBench measures how long the upgrades of a cluster take, in place and by
// replacement.
type upgradeBench struct {
	name                   string
	controlPlanes, workers int
	versions               []string
	clone, timeout         time.Duration
	out                    io.Writer
	bed                    *bed.Bed
	// programs are the downloads of the versions, as a field of an object.
	programs any
}

// upgrades is the result for one cluster.
type upgrades struct {
	took     time.Duration
	endpoint prober.Report
	pods     bed.PodReport
}

func benchInPlaceCommand() *cobra.Command {
	n := upgradeBench{}
	cmd := &cobra.Command{
		Use:   "bench-inplace",
		Short: "Measure upgrades of a cluster to the next minor versions, in place and by replacement",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.out = cmd.OutOrStdout()
			return n.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&n.name, "name", "bench-place", "name of the test environment")
	flags.IntVar(&n.controlPlanes, "control-planes", 3, "number of control plane machines")
	flags.IntVar(&n.workers, "workers", 2, "number of workers")
	flags.StringSliceVar(&n.versions, "versions", []string{bed.KubernetesVersion, bed.NewerVersion}, "versions of Kubernetes to upgrade to, in this order")
	flags.DurationVar(&n.clone, "clone", time.Minute, "duration of a clone in vCenter")
	flags.DurationVar(&n.timeout, "timeout", 20*time.Minute, "timeout for the creation of a cluster, and for each upgrade")
	return cmd
}

func (n *upgradeBench) run(ctx context.Context) (err error) {
	n.bed, err = bed.Start(ctx, bed.Options{
		Unobserved: true, InPlace: true,
		Name: n.name, Log: n.out, Hypervisors: []string{bed.VSphere}, Versions: []string{bed.OlderVersion, bed.NewerVersion},
		Delays: map[string]time.Duration{"CloneVM_Task": n.clone},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.bed.Stop(context.WithoutCancel(ctx))) }()
	if err := n.bed.RegisterExtension(ctx); err != nil {
		return err
	}
	programs, stop, err := n.bed.ServePrograms(ctx, n.versions...)
	if err != nil {
		return err
	}
	defer stop()
	platform, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&bootstrapv1.PlatformSpec{KubernetesPrograms: programs})
	if err != nil {
		return fmt.Errorf("writing programs: %w", err)
	}
	n.programs = platform["kubernetesPrograms"]
	results := map[bootstrapv1.InPlaceMode]upgrades{}
	for i, mode := range []bootstrapv1.InPlaceMode{bootstrapv1.InPlaceOnly, bootstrapv1.InPlaceNever} {
		if results[mode], err = n.measure(ctx, mode, i); err != nil {
			return errors.Join(err, n.bed.CollectArtifacts(context.WithoutCancel(ctx), filepath.Join(tools.Root(), "_artifacts", n.name)))
		}
	}
	inPlace, replaced := results[bootstrapv1.InPlaceOnly], results[bootstrapv1.InPlaceNever]
	if wrong := slices.Concat(inPlace.pods.Restarted, inPlace.pods.Undrained); len(wrong) > 0 {
		err = fmt.Errorf("pods were restarted, or removed from a Node that was not drained: %s", strings.Join(wrong, ", "))
	}
	fmt.Fprintf(n.out, "bench-inplace: inplace=%.0f replace=%.0f api_failed=%d\n", inPlace.took.Seconds(), replaced.took.Seconds(), inPlace.endpoint.Failures)
	return err
}

// measure creates a cluster, upgrades it, and deletes it.
func (n *upgradeBench) measure(ctx context.Context, mode bootstrapv1.InPlaceMode, index int) (seen upgrades, err error) {
	name := []string{"inplace", "replace"}[index]
	c := bed.Cluster{
		Name: name, Namespace: name, Version: bed.OlderVersion, ControlPlanes: n.controlPlanes, Workers: n.workers,
		// An address of its own: nothing that remembers the other's is in the way.
		Endpoint: fmt.Sprintf("10.77.0.%d", 10+index),
	}
	if err := n.create(ctx, c, mode); err != nil {
		return seen, err
	}
	workload, err := n.bed.DeployWorkload(ctx, c)
	if err != nil {
		return seen, err
	}
	check, err := n.bed.EndpointCheck(ctx, c)
	if err != nil {
		return seen, err
	}
	stop, err := n.bed.WatchPods(ctx, c)
	if err != nil {
		return seen, err
	}
	endpoint, service := prober.Start(ctx, 200*time.Millisecond, time.Second, check), prober.Start(ctx, 200*time.Millisecond, time.Second, workload.Check)
	for _, version := range n.versions {
		var took time.Duration
		if took, err = n.upgrade(ctx, &c, version, mode); err != nil {
			break
		}
		seen.took += took
	}
	seen.endpoint, seen.pods = endpoint.Stop(), stop()
	served := service.Stop()
	if err != nil {
		return seen, err
	}
	fmt.Fprintf(n.out, "%s: upgraded in %.1f s\n%s: endpoint: %s\n%s: workload: %s; %d pods were moved, %d restarted\n",
		name, seen.took.Seconds(), name, seen.endpoint, name, served, seen.pods.Moved, len(seen.pods.Restarted))
	return seen, (&planeBench{bed: n.bed, out: n.out, timeout: n.timeout}).remove(ctx, c)
}

// create creates a cluster and waits for it.
func (n *upgradeBench) create(ctx context.Context, c bed.Cluster, mode bootstrapv1.InPlaceMode) error {
	objects, err := n.bed.Generate(ctx, c)
	if err != nil {
		return err
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "NovaControlPlane":
			err = unstructured.SetNestedField(o.Object, string(mode), "spec", "rollout", "inPlace")
			if err == nil && n.programs != nil {
				err = unstructured.SetNestedField(o.Object, n.programs, "spec", "platform", "kubernetesPrograms")
			}
		case "NovaConfigTemplate":
			err = unstructured.SetNestedField(o.Object, string(mode), "spec", "template", "spec", "rollout", "inPlace")
		}
		if err != nil {
			return fmt.Errorf("changing %s: %w", o.GetKind(), err)
		}
	}
	if err := n.bed.Credentials(ctx, c); err != nil {
		return err
	}
	if err := bed.Apply(ctx, n.bed.Client, objects...); err != nil {
		return err
	}
	return n.await(ctx, c.Name+" is not ready", func(ctx context.Context) bool { return n.bed.CheckCluster(ctx, c) == nil })
}

// upgrade upgrades a cluster: the control plane, and then the workers. It returns how
// long it takes until all machines have the version and no other ones exist.
func (n *upgradeBench) upgrade(ctx context.Context, c *bed.Cluster, version string, mode bootstrapv1.InPlaceMode) (time.Duration, error) {
	started := time.Now()
	c.Version = version
	plane, workers := &controlplanev1.NovaControlPlane{}, &clusterv1.MachineDeployment{}
	planeTemplate, workerTemplate := "", ""
	if mode == bootstrapv1.InPlaceNever {
		// A replacement needs another VM template.
		suffix := "-" + strings.ReplaceAll(version, ".", "-")
		planeTemplate, workerTemplate = c.Name+"-control-plane"+suffix, c.Name+"-worker"+suffix
		if err := errors.Join(
			n.bed.CopyTemplate(ctx, *c, c.Name+"-control-plane", planeTemplate, bed.VersionTemplate(version)),
			n.bed.CopyTemplate(ctx, *c, c.Name+"-worker", workerTemplate, bed.VersionTemplate(version)),
		); err != nil {
			return 0, err
		}
	}
	if err := n.change(ctx, c, plane, c.Name+"-control-plane", func() {
		plane.Spec.Version = version
		if planeTemplate != "" {
			plane.Spec.MachineTemplate.Spec.InfrastructureRef.Name = planeTemplate
		}
	}); err != nil {
		return 0, err
	}
	if err := n.awaitVersion(ctx, c, false); err != nil {
		return 0, err
	}
	planes := time.Since(started)
	if err := n.change(ctx, c, workers, c.Name+"-worker", func() {
		workers.Spec.Template.Spec.Version = version
		if workerTemplate != "" {
			workers.Spec.Template.Spec.InfrastructureRef.Name = workerTemplate
			return
		}
		// No machine is created.
		workers.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
			Type: clusterv1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{
				MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			},
		}
	}); err != nil {
		return 0, err
	}
	if err := n.awaitVersion(ctx, c, true); err != nil {
		return 0, err
	}
	took := time.Since(started)
	fmt.Fprintf(n.out, "%s: %s after %.1f s: control plane %.1f s, workers %.1f s\n", c.Name, version, took.Seconds(), planes.Seconds(), (took - planes).Seconds())
	return took, nil
}

// change changes an object.
func (n *upgradeBench) change(ctx context.Context, c *bed.Cluster, o client.Object, name string, how func()) error {
	return n.await(ctx, name+" is not changed", func(ctx context.Context) bool {
		if n.bed.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, o) != nil {
			return false
		}
		before, is := o.DeepCopyObject().(client.Object)
		how()
		return is && n.bed.Client.Patch(ctx, o, client.MergeFrom(before)) == nil
	})
}

// awaitVersion waits until all control plane machines, or also all workers, have the
// version of the cluster.
func (n *upgradeBench) awaitVersion(ctx context.Context, c *bed.Cluster, workersToo bool) error {
	return n.await(ctx, "the upgrade of "+c.Name+" to "+c.Version+" does not end", func(ctx context.Context) bool {
		plane, err := n.bed.ControlPlane(ctx, *c)
		if err != nil || len(plane.Status.Versions) != 1 || plane.Status.Versions[0].Version != c.Version {
			return false
		}
		machines, workers, err := n.bed.Machines(ctx, *c)
		if err != nil {
			return false
		}
		if workersToo {
			machines = append(machines, workers...)
		}
		for i := range machines {
			if _, changing := machines[i].Annotations[clusterv1.UpdateInProgressAnnotation]; changing || machines[i].Spec.Version != c.Version {
				return false
			}
		}
		return n.bed.CheckCluster(ctx, *c) == nil
	})
}

// await waits for a state, for a limited time.
func (n *upgradeBench) await(ctx context.Context, what string, is func(context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("%s within %s", what, n.timeout))
	defer cancel()
	err := poll(ctx, func() (bool, error) { return is(ctx), nil })
	if err != nil && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return err
}
