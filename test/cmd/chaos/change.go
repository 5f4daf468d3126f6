package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

// makeChanges makes one change after another until the time is over, each after the previous one is
// complete.
func (r *run) makeChanges(ctx context.Context, d dice) {
	for number := 1; pause(ctx, d.between(shortestPause, longestPause)); number++ {
		kind := pick(d, changes)
		started := time.Now()
		r.mu.Lock()
		r.changed[kind]++
		r.mu.Unlock()
		// Time that is up does not end a change half-way.
		if err := r.carryOut(context.WithoutCancel(ctx), d, kind, number); err != nil {
			r.mu.Lock()
			r.problems = append(r.problems, err)
			r.mu.Unlock()
			r.logf("change: %v", err)
			return
		}
		r.logf("change: %s took %s", kind, time.Since(started).Round(time.Second))
	}
}

// carryOut makes a change and waits until it is complete.
func (r *run) carryOut(ctx context.Context, d dice, kind change, number int) error {
	var ask func(context.Context) error
	var replaced []string
	planes, workers, err := r.names(ctx)
	if err != nil {
		return err
	}
	switch kind {
	case scaleWorkers:
		count := 2 + d.IntN(3)
		ask = r.toWorkers(func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To(int32(count)) })
		r.mu.Lock()
		r.cluster.Workers = count
		r.mu.Unlock()
		r.logf("change: %s to %d", kind, count)
	case scalePlane:
		r.mu.Lock()
		r.cluster.ControlPlanes = 8 - r.cluster.ControlPlanes // 3 and 5 in turn
		count := r.cluster.ControlPlanes
		r.mu.Unlock()
		ask = r.toPlane(func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Replicas = ptr.To(int32(count)) })
		r.logf("change: %s to %d", kind, count)
	case rolloutWorkers:
		now := metav1.Now()
		replaced = workers
		ask = r.toWorkers(func(md *clusterv1.MachineDeployment) { md.Spec.Rollout.After = now })
		r.logf("change: %s", kind)
	case rolloutPlane:
		now := metav1.Now()
		replaced = planes
		ask = r.toPlane(func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Rollout.After = &now })
		r.logf("change: %s", kind)
	case reconfigurePlane:
		replaced = planes
		file := bootstrapv1.File{Path: "/etc/chaos", Content: fmt.Sprintf("%d\n", number)}
		ask = r.toPlane(func(cp *controlplanev1.NovaControlPlane) { setFile(cp, file) })
		r.logf("change: %s", kind)
	}
	return errors.Join(
		until(ctx, time.Minute, "asking to "+string(kind), ask),
		until(ctx, changeTimeout, "waiting for the end of "+string(kind), func(ctx context.Context) error {
			return r.carriedOut(ctx, replaced)
		}),
	)
}

// names are those of the machines.
func (r *run) names(ctx context.Context) (planes, workers []string, err error) {
	err = until(ctx, time.Minute, "listing machines", func(ctx context.Context) error {
		p, w, err := r.bed.Machines(ctx, r.desired())
		planes, workers = names(p), names(w)
		return err
	})
	return planes, workers, err
}

// setFile puts a file on the nodes of a control plane.
func setFile(cp *controlplanev1.NovaControlPlane, file bootstrapv1.File) {
	for i := range cp.Spec.Config.Files {
		if cp.Spec.Config.Files[i].Path == file.Path {
			cp.Spec.Config.Files[i] = file
			return
		}
	}
	cp.Spec.Config.Files = append(cp.Spec.Config.Files, file)
}

func (r *run) toWorkers(how func(*clusterv1.MachineDeployment)) func(context.Context) error {
	return func(ctx context.Context) error {
		md := &clusterv1.MachineDeployment{}
		c := r.desired()
		if err := r.bed.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, md); err != nil {
			return err
		}
		before := md.DeepCopy()
		how(md)
		return r.bed.Client.Patch(ctx, md, client.MergeFrom(before))
	}
}

func (r *run) toPlane(how func(*controlplanev1.NovaControlPlane)) func(context.Context) error {
	return func(ctx context.Context) error {
		cp, err := r.bed.ControlPlane(ctx, r.desired())
		if err != nil {
			return err
		}
		before := cp.DeepCopy()
		how(cp)
		return r.bed.Client.Patch(ctx, cp, client.MergeFrom(before))
	}
}

// carriedOut fails until the machines match the change, and the replaced machines are deleted. It
// does not check whether all machines are healthy at this moment.
func (r *run) carriedOut(ctx context.Context, replaced []string) error {
	c := r.desired()
	cp, err := r.bed.ControlPlane(ctx, c)
	if err != nil {
		return err
	}
	planes, workers, err := r.bed.Machines(ctx, c)
	if err != nil {
		return err
	}
	md := &clusterv1.MachineDeployment{}
	if err := r.bed.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, md); err != nil {
		return err
	}
	switch {
	case among(replaced, names(planes)) || among(replaced, names(workers)):
		return errors.New("a machine that is to be replaced is there")
	case len(running(planes)) != c.ControlPlanes || len(planes) != c.ControlPlanes:
		return fmt.Errorf("%d of %d control plane machines have joined, of %d", len(running(planes)), len(planes), c.ControlPlanes)
	case len(running(workers)) != c.Workers || len(workers) != c.Workers:
		return fmt.Errorf("%d of %d workers have joined, of %d", len(running(workers)), len(workers), c.Workers)
	case cp.Status.ObservedGeneration != cp.Generation || ptr.Deref(cp.Status.UpToDateReplicas, 0) != int32(c.ControlPlanes):
		return fmt.Errorf("%d control plane machines are up to date, of %d", ptr.Deref(cp.Status.UpToDateReplicas, 0), c.ControlPlanes)
	case md.Status.ObservedGeneration != md.Generation || ptr.Deref(md.Status.UpToDateReplicas, 0) != int32(c.Workers):
		return fmt.Errorf("%d workers are up to date, of %d", ptr.Deref(md.Status.UpToDateReplicas, 0), c.Workers)
	}
	return nil
}
