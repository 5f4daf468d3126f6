package vcenter

import (
	"fmt"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// FailHost has a host die. vSphere HA restarts its VMs on other hosts of the
// cluster. A VM that an anti-affinity rule keeps from each of them stays down,
// also if the rule is not mandatory: das.respectVmVmAntiAffinityRules is on.
func (s *Server) FailHost(name string) error {
	var died, restarted []*simulator.VirtualMachine
	err := s.changeHost(name, func(ctx *simulator.Context, cluster *simulator.ClusterComputeResource, host *simulator.HostSystem) error {
		ctx.Update(host, []types.PropertyChange{{Name: "runtime.connectionState", Val: types.HostSystemConnectionStateNotResponding}})
		s.countHosts(ctx, host)
		for _, vm := range running(ctx, host) {
			died = append(died, vm)
			setPower(ctx, vm, poweredOff)
			if to := hostFor(ctx, cluster, vm); to != nil {
				moveTo(ctx, vm, to)
				restarted = append(restarted, vm)
			} else {
				setConnection(ctx, vm, string(types.VirtualMachineConnectionStateDisconnected))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, vm := range died {
		if s.opts.Guests != nil {
			if err := s.opts.Guests.PowerOff(s.ctx, s.snapshot(vm), false); err != nil {
				return err
			}
		}
	}
	for _, vm := range restarted {
		if refused := s.powerOn(vm); refused != nil {
			return fmt.Errorf("restarting %s: %s", vm.Name, refused.message)
		}
	}
	return nil
}

// EnterMaintenance has DRS move the VMs of a host to other hosts of the cluster.
// It fails, and the host stays in use, if an anti-affinity rule keeps a VM from
// each of them.
func (s *Server) EnterMaintenance(name string) error {
	return s.changeHost(name, func(ctx *simulator.Context, cluster *simulator.ClusterComputeResource, host *simulator.HostSystem) error {
		host.Runtime.InMaintenanceMode = true
		for _, vm := range running(ctx, host) {
			to := hostFor(ctx, cluster, vm)
			if to == nil {
				host.Runtime.InMaintenanceMode = false
				return fmt.Errorf("no host of the cluster can take %s", vm.Name)
			}
			moveTo(ctx, vm, to)
		}
		s.countHosts(ctx, host)
		return nil
	})
}

// changeHost changes a host of a cluster.
func (s *Server) changeHost(
	name string, change func(*simulator.Context, *simulator.ClusterComputeResource, *simulator.HostSystem) error,
) error {
	err := fmt.Errorf("no host %q in a cluster", name)
	s.locked(func(ctx *simulator.Context) {
		for _, entity := range ctx.Map.All("HostSystem") {
			host, ok := entity.(*simulator.HostSystem)
			if !ok || host.Name != name {
				continue
			}
			if cluster, ok := ctx.Map.Get(*host.Parent).(*simulator.ClusterComputeResource); ok {
				err = change(ctx, cluster, host)
				s.watch.touchAll()
			}
		}
	})
	return err
}

// running are the VMs that run on a host.
func running(ctx *simulator.Context, host *simulator.HostSystem) (vms []*simulator.VirtualMachine) {
	for _, at := range host.Vm {
		if vm, ok := ctx.Map.Get(at).(*simulator.VirtualMachine); ok && vm.Runtime.PowerState == poweredOn {
			vms = append(vms, vm)
		}
	}
	return vms
}

// usableHosts are the hosts of a cluster that respond and are not in
// maintenance.
func usableHosts(ctx *simulator.Context, cluster *simulator.ClusterComputeResource) (hosts []*simulator.HostSystem) {
	for _, at := range cluster.Host {
		if host, ok := ctx.Map.Get(at).(*simulator.HostSystem); ok && isUsable(ctx, at) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

func isUsable(ctx *simulator.Context, at ref) bool {
	host, ok := ctx.Map.Get(at).(*simulator.HostSystem)
	return ok && host.Runtime.ConnectionState == types.HostSystemConnectionStateConnected && !host.Runtime.InMaintenanceMode
}

// countHosts keeps the number of usable hosts of a host's cluster.
func (s *Server) countHosts(ctx *simulator.Context, host *simulator.HostSystem) {
	cluster, ok := ctx.Map.Get(*host.Parent).(*simulator.ClusterComputeResource)
	if !ok {
		return
	}
	cluster.Summary.GetComputeResourceSummary().NumEffectiveHosts = int32(len(usableHosts(ctx, cluster)))
	s.watch.touch(cluster.Self)
}

// hostFor is a usable host of a cluster that no enabled anti-affinity rule keeps
// a VM from, or nil. Hosts that a rule binds the VM's group to come first, and
// are the only ones if the rule is mandatory.
func hostFor(ctx *simulator.Context, cluster *simulator.ClusterComputeResource, vm *simulator.VirtualMachine) *simulator.HostSystem {
	config := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	hosts := usableHosts(ctx, cluster)
	var apart []ref
	for _, rule := range config.Rule {
		if info := rule.GetClusterRuleInfo(); info.Enabled == nil || !*info.Enabled {
			continue
		}
		switch it := rule.(type) {
		case *types.ClusterAntiAffinityRuleSpec:
			if slices.Contains(it.Vm, vm.Self) {
				apart = append(apart, it.Vm...)
			}
		case *types.ClusterVmHostRuleInfo:
			if bound := boundTo(config, it, vm.Self); bound != nil {
				mandatory := it.Mandatory != nil && *it.Mandatory
				hosts = preferred(hosts, bound, mandatory)
			}
		}
	}
	for _, host := range hosts {
		if !slices.ContainsFunc(host.Vm, func(other ref) bool { return other != vm.Self && slices.Contains(apart, other) }) {
			return host
		}
	}
	return nil
}

// boundTo are the hosts that a rule binds a VM to, if it does.
func boundTo(config *types.ClusterConfigInfoEx, rule *types.ClusterVmHostRuleInfo, vm ref) (hosts []ref) {
	concerned := false
	for _, group := range config.Group {
		switch it := group.(type) {
		case *types.ClusterVmGroup:
			concerned = concerned || it.Name == rule.VmGroupName && slices.Contains(it.Vm, vm)
		case *types.ClusterHostGroup:
			if it.Name == rule.AffineHostGroupName {
				hosts = it.Host
			}
		}
	}
	if !concerned {
		return nil
	}
	return hosts
}

// preferred orders hosts: first those that a rule names, then, unless it is
// mandatory, the others.
func preferred(hosts []*simulator.HostSystem, named []ref, mandatory bool) (ordered []*simulator.HostSystem) {
	var others []*simulator.HostSystem
	for _, host := range hosts {
		if slices.Contains(named, host.Self) {
			ordered = append(ordered, host)
		} else {
			others = append(others, host)
		}
	}
	if mandatory {
		return ordered
	}
	return append(ordered, others...)
}
