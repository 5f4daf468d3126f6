package vsphere

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// clusterInfo is a compute cluster in which VMs of ours run.
type clusterInfo struct {
	spec.ClusterSettings
	// stale is set when the settings may be out of date, partial when vCenter
	// reported only a part of a change of them.
	stale, partial bool
}

func newClusterInfo(config *types.ClusterConfigInfoEx) *clusterInfo {
	return &clusterInfo{ClusterSettings: spec.NewClusterSettings(config)}
}

// applyCluster stores the changed properties of a compute cluster.
func (o *objectCache) applyCluster(u types.ObjectUpdate) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(o.clusters, u.Obj)
		delete(o.usableHosts, u.Obj)
		return
	}
	for _, c := range u.ChangeSet {
		if c.Name == usableProperty {
			o.usableHosts[u.Obj], _ = c.Val.(int32)
			continue
		}
		config, whole := c.Val.(types.ClusterConfigInfoEx)
		if c.Name != settingsProperty || !whole {
			if known := o.clusters[u.Obj]; known != nil {
				known.stale, known.partial = true, true
			}
			continue
		}
		o.clusters[u.Obj] = newClusterInfo(&config)
	}
}

// clusterInfoOf returns the compute cluster of a VM, with its settings if these
// are known.
func (o *objectCache) clusterInfoOf(info *vmInfo) (ref, *clusterInfo) {
	at, ok := o.clusterOf(info)
	if !ok {
		return ref{}, nil // a standalone host has no rules
	}
	return at, o.clusters[at]
}

// markStale makes a worker read a compute cluster's settings before the next
// change.
func (o *objectCache) markStale(at ref) {
	if cluster := o.clusters[at]; cluster != nil {
		cluster.stale = true
	}
}

// readIfStale reads the settings of a compute cluster if they may be out of
// date: after a failure, or when vCenter reported only a part of a change.
func (i *inventory) readIfStale(ctx context.Context, c *vim25.Client, at ref) error {
	i.mu.Lock()
	cluster := i.objects.clusters[at]
	stale := cluster != nil && cluster.stale
	i.mu.Unlock()
	if !stale {
		return nil
	}
	return i.readCluster(ctx, c, at)
}

// readCluster reads the settings of a compute cluster.
func (i *inventory) readCluster(ctx context.Context, c *vim25.Client, at ref) error {
	var cluster mo.ClusterComputeResource
	if err := object.NewCommon(c, at).Properties(ctx, at, []string{settingsProperty}, &cluster); err != nil {
		return fmt.Errorf("reading the compute cluster's rules: %w", err)
	}
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return nil
	}
	i.update(func(o *objectCache) []uuid.UUID {
		o.clusters[at] = newClusterInfo(config)
		return o.allUUIDs()
	})
	return nil
}

// takePartial returns the compute clusters for which vCenter reported only a
// part of a change, and marks them as read.
func (i *inventory) takePartial() (clusters []ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for at, cluster := range i.objects.clusters {
		if cluster.partial {
			cluster.partial = false
			clusters = append(clusters, at)
		}
	}
	return clusters
}

// readPartial reads the settings of which vCenter reported only a part.
// Settings that cannot be read now are read before they are changed.
func (s *stream) readPartial(ctx context.Context, inv *inventory) error {
	for _, at := range inv.takePartial() {
		if err := inv.readCluster(ctx, s.client, at); err != nil && vcenter.IsAmbiguous(err) {
			return err
		}
	}
	return nil
}

// awaitTask returns a channel that is closed when a task has ended.
func (i *inventory) awaitTask(task ref) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	ended := make(chan struct{})
	if t := i.objects.tasks[task]; t != nil && t.ended() {
		close(ended)
		return ended
	}
	i.awaitedTasks[task] = ended
	return ended
}

// endAwait drops the channel of a task.
func (i *inventory) endAwait(task ref) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.awaitedTasks, task)
}
