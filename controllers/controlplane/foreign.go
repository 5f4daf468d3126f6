package controlplane

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/reconcile"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// observedNodes remember, by control plane, which Machines this process has
// observed and when each node was last healthy. They distinguish the node of a
// deleted Machine from the node of a Machine that the management cluster never
// had, as after a restore from an old backup. They are kept in memory only:
// after a restart each node gets its full grace period again.
type observedNodes struct {
	reconcile.Memory[types.UID, *nodeRecord]
}

type nodeRecord struct {
	machines sets.Set[string]
	well     map[string]time.Time
}

// note records the observed state, and returns the nodes without a Machine that
// are not removed yet although they do not respond.
func (k *observedNodes) note(s *scope.Scope, now time.Time) sets.Set[string] {
	seen, known := k.Get(s.ControlPlane.UID)
	if !known {
		seen = &nodeRecord{machines: sets.New[string](), well: map[string]time.Time{}}
		k.Set(s.ControlPlane.UID, seen)
	}
	for name := range s.Machines {
		seen.machines.Insert(name)
	}
	there := seen.look(s, now)
	machineOfNode := map[string]string{}
	for _, node := range s.Workload.Nodes {
		machineOfNode[node.Name] = node.Machine
	}
	inGrace := sets.New[string]()
	for name, at := range seen.well {
		if !there.Has(name) {
			if s.Workload.Answers && s.Workload.Etcd != nil {
				delete(seen.well, name)
			}
			continue
		}
		if !seen.machines.Has(name) && !seen.machines.Has(machineOfNode[name]) && now.Sub(at) < timelimits.OrphanGrace {
			inGrace.Insert(name)
		}
	}
	return inGrace
}

// look records which control plane nodes are healthy now, and returns those
// that exist.
func (k *nodeRecord) look(s *scope.Scope, now time.Time) sets.Set[string] {
	there := sets.New[string]()
	add := func(name string, well bool) {
		there.Insert(name)
		if _, known := k.well[name]; well || !known {
			k.well[name] = now
		}
	}
	for _, node := range s.Workload.Nodes {
		if node.ControlPlane {
			add(node.Name, node.Ready)
		}
	}
	if s.Workload.Etcd != nil {
		for _, m := range s.Workload.Etcd.Members {
			if m.Name != "" {
				add(m.Name, m.Answers)
			}
		}
	}
	return there
}
