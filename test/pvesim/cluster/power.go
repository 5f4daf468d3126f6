package cluster

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/qemu"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// defaultTimeout is the timeout of power actions in seconds.
const defaultTimeout = 60

// suspended is the lock of a VM that is suspended to disk.
const suspended = "suspended"

// startRequest handles POST …/status/start.
func startRequest(q *call) (any, error) {
	if err := q.rootOnly("stateuri", "skiplock", "migratedfrom", "migration_type", "migration_network", "targetstorage", "force-cpu", "with-conntrack-state", "nets-host-mtu"); err != nil {
		return nil, err
	}
	if err := q.requireQuorum(); err != nil {
		return nil, err
	}
	vmid := q.number("vmid", 0)
	if q.c.managed(vmid) {
		return q.fork("hastart", strconv.Itoa(vmid), func(t *task) {
			t.finish(q.c.requestState(vmid, "started"))
		}).upid, nil
	}
	t := q.fork("qmstart", strconv.Itoa(vmid), q.c.starter(q.node, vmid))
	return t.upid, nil
}

// startVM starts a VM without a request.
func (c *Cluster) startVM(node, user string, v *vm) {
	n, err := c.node(node)
	if err != nil {
		return
	}
	c.fork(node, user, "qmstart", strconv.Itoa(v.vmid), c.starter(n, v.vmid))
}

// starter returns the work of a task that starts a VM.
func (c *Cluster) starter(n *node, vmid int) func(t *task) {
	return func(t *task) {
		t.withLock(vmid, false, func() error {
			v, err := c.onNode(vmid, n)
			if err == nil {
				err = c.startable(v, n)
			}
			if err != nil {
				return err
			}
			if v.config.Lock() == suspended {
				delete(v.config.Options, "lock")
			}
			problems := map[string]string{}
			c.applyPending(v, problems)
			v.running, v.paused, v.started = true, false, time.Now()
			powerOn := func(ctx context.Context, described VM) error { return c.guests.PowerOn(ctx, described) }
			c.call(v, TimeStart, powerOn, func(err error) {
				if err != nil {
					c.off(v)
					err = fmt.Errorf("start failed: QEMU exited with code 1: %w", err)
				}
				t.finish(err)
			})
			return nil
		})
	}
}

// startable returns an error for a VM that cannot be started.
func (c *Cluster) startable(v *vm, n *node) error {
	// A VM that is suspended to disk is resumed.
	if err := v.checkLock(); err != nil && v.config.Lock() != suspended {
		return err
	}
	if v.config.Template() {
		return schema.Failed("you can't start a vm if it's a template")
	}
	if v.running {
		return schema.Failed("VM %d already running", v.vmid)
	}
	config := v.config.Clone()
	for option := range config.Deleted {
		delete(config.Options, option)
	}
	maps.Copy(config.Options, config.Pending)
	for _, option := range config.Drives() {
		drive, err := qemu.ParseDrive(option, config.Options[option])
		if _, _, managed := drive.Volume(); err == nil && managed {
			if _, err := c.volume(drive.File(), n); err != nil {
				return err
			}
		}
	}
	for _, option := range config.Nets() {
		net, _ := qemu.ParseNet(option, config.Options[option])
		if bridge := net.Property["bridge"]; bridge != "" && !c.hasNetwork(n, bridge) {
			return schema.Failed("bridge '%s' does not exist", bridge)
		}
	}
	if err := n.fits(config); err != nil {
		return err
	}
	return c.reservePCI(v, config, n)
}

// fits returns an error for a VM whose CPUs and memory the node cannot start.
func (n *node) fits(config *qemu.Config) error {
	if memory := config.MemoryMiB(); memory > n.MemoryMiB {
		return schema.Failed("start failed: QEMU exited with code 1: cannot set up guest memory 'pc.ram': Cannot allocate memory")
	}
	if all := config.AllCPUs(); all > int64(n.Cores) {
		return schema.Failed("start failed: MAX %d vcpus allowed per VM on this node", n.Cores)
	}
	if hotplugs(config, "memory") {
		switch {
		case config.Options["numa"] != "1":
			return schema.Failed("start failed: NUMA needs to be enabled for memory hotplug")
		case config.MemoryMiB() < staticMemory:
			return schema.Failed("start failed: minimum memory must be %dMB", staticMemory)
		}
	}
	return nil
}

// reservePCI returns an error if a mapped PCI device is not on the node, or in
// use by another VM.
func (c *Cluster) reservePCI(v *vm, config *qemu.Config, n *node) error {
	for option, value := range config.Options {
		if !qemu.IsPCI(option) {
			continue
		}
		device, _ := qemu.Parse(option, value)
		mapping := c.mapping(device["mapping"])
		if mapping == nil || mapping.Paths[n.Name] == "" {
			return schema.Failed("PCI device mapping invalid (hardware probably changed): no mapping of '%s' for node '%s'", device["mapping"], n.Name)
		}
		for _, other := range c.vms {
			for name, text := range other.config.Options {
				used, _ := qemu.Parse("hostpci0", text)
				if other != v && other.running && other.node == n.Name && qemu.IsPCI(name) && used["mapping"] == device["mapping"] {
					return schema.Failed("PCI device '%s' already in use by VMID '%d'", mapping.Paths[n.Name], other.vmid)
				}
			}
		}
	}
	return nil
}

// off puts a VM into the state stopped and applies its pending changes.
func (c *Cluster) off(v *vm) {
	v.running, v.paused, v.agent, v.guest = false, false, false, Guest{}
	c.applyPending(v, map[string]string{})
}

// stopRequest handles POST …/status/stop.
func stopRequest(q *call) (any, error) {
	if err := q.rootOnly("skiplock", "keepActive", "migratedfrom"); err != nil {
		return nil, err
	}
	vmid := q.number("vmid", 0)
	if q.c.managed(vmid) {
		if q.on("overrule-shutdown") {
			return nil, schema.InvalidParameter("overrule-shutdown", "Not applicable for HA resources.")
		}
		return q.haStop(vmid), nil
	}
	t := q.fork("qmstop", strconv.Itoa(vmid), func(t *task) {
		if q.on("overrule-shutdown") {
			q.c.abortShutdowns(vmid, t)
		}
		t.withLock(vmid, false, func() error { return q.c.halt(t, q.node, vmid, false, q.number("timeout", defaultTimeout), true) })
	})
	return t.upid, nil
}

// abortShutdowns ends the tasks that shut a VM down.
func (c *Cluster) abortShutdowns(vmid int, by *task) {
	for _, t := range c.tasks {
		if t.kind == "qmshutdown" && t.id == strconv.Itoa(vmid) && !t.ended() {
			t.aborted = errInterrupted
			t.finish(t.aborted)
			by.printf("overruled qmshutdown tasks: %s", t.upid)
		}
	}
}

// shutdownRequest handles POST …/status/shutdown.
func shutdownRequest(q *call) (any, error) {
	if err := q.rootOnly("skiplock", "keepActive"); err != nil {
		return nil, err
	}
	vmid := q.number("vmid", 0)
	soft := true
	if v := q.c.vms[vmid]; v != nil && v.paused {
		if !q.on("forceStop") {
			return nil, schema.Failed("VM is paused - cannot shutdown")
		}
		soft = false
	}
	timeout := q.number("timeout", defaultTimeout)
	if q.c.managed(vmid) {
		return q.haStop(vmid), nil
	}
	t := q.fork("qmshutdown", strconv.Itoa(vmid), func(t *task) {
		t.withLock(vmid, false, func() error { return q.c.halt(t, q.node, vmid, soft, timeout, q.on("forceStop")) })
	})
	if q.doomed != "" {
		// The guest ignores the request.
		t.doomed = nil
		if v := q.c.vms[vmid]; v != nil {
			v.guest.Files = map[string]string{ignoresShutdown: ""}
		}
	}
	return t.upid, nil
}

// ignoresShutdown marks a guest that does not shut down.
const ignoresShutdown = "\x00ignores-shutdown"

// halt ends a VM. A shutdown ends with an error after the timeout, unless force is
// set: then the VM is stopped.
func (c *Cluster) halt(t *task, n *node, vmid int, soft bool, timeout int, force bool) error {
	v := c.vms[vmid]
	if v == nil || v.node != n.Name || !v.running {
		if _, err := c.onNode(vmid, n); err != nil && v == nil {
			return err
		}
		t.finish(nil)
		return nil
	}
	if err := v.checkLock(); err != nil {
		return err
	}
	started := v.started
	if soft {
		c.after(c.seconds(timeout), func() {
			if t.ended() || !v.running || v.started != started {
				return
			}
			if !force {
				t.finish(schema.Failed("VM quit/powerdown failed - got timeout"))
				return
			}
			t.printf("VM still running - terminating now with SIGTERM")
			c.powerOff(t, v, false)
		})
	}
	if _, ignores := v.guest.Files[ignoresShutdown]; !soft || !ignores {
		c.powerOff(t, v, soft)
	}
	return nil
}

// powerOff ends a VM's machine, and the task.
func (c *Cluster) powerOff(t *task, v *vm, soft bool) {
	timing := TimeStop
	if soft {
		timing = TimeShutdown
	}
	started := v.started
	powerOff := func(ctx context.Context, described VM) error { return c.guests.PowerOff(ctx, described, soft) }
	c.call(v, timing, powerOff, func(err error) {
		if err == nil && v.running && v.started.Equal(started) {
			c.off(v)
		}
		if !t.ended() {
			t.finish(err)
		}
	})
}

// resetRequest handles POST …/status/reset and reboot.
func resetRequest(kind string, soft bool) handler {
	return func(q *call) (any, error) {
		if err := q.rootOnly("skiplock"); err != nil {
			return nil, err
		}
		v, err := q.vm()
		switch {
		case err != nil:
			return nil, err
		case soft && v.paused:
			return nil, schema.Failed("VM is paused - cannot shutdown")
		case !v.running:
			return nil, schema.Failed("VM %d not running", v.vmid)
		}
		t := q.fork(kind, strconv.Itoa(v.vmid), func(t *task) {
			t.withLock(v.vmid, false, func() error { return q.c.restart(t, v, soft) })
		})
		return t.upid, nil
	}
}

// restart restarts a VM's machine. A reboot applies pending changes.
func (c *Cluster) restart(t *task, v *vm, soft bool) error {
	if err := v.checkLock(); err != nil {
		return err
	}
	v.agent, v.guest = false, Guest{}
	again := func(ctx context.Context, described VM) error {
		if err := c.guests.PowerOff(ctx, described, soft); err != nil {
			return err
		}
		return c.guests.PowerOn(ctx, described)
	}
	if soft {
		c.applyPending(v, map[string]string{})
	}
	c.call(v, TimeStart, again, func(err error) {
		if err == nil {
			v.started = time.Now()
		}
		t.finish(err)
	})
	return nil
}

// pauseRequest handles POST …/status/suspend and resume.
func pauseRequest(kind string, pause bool) handler {
	return func(q *call) (any, error) {
		if err := q.rootOnly("skiplock", "nocheck"); err != nil {
			return nil, err
		}
		v, err := q.vm()
		switch {
		case err != nil:
			return nil, err
		case q.on("todisk"):
			return nil, schema.Failed("suspend to disk is not simulated")
		case !v.running:
			return nil, schema.Failed("VM %d not running", v.vmid)
		}
		return q.fork(kind, strconv.Itoa(v.vmid), func(t *task) {
			v.paused = pause
			t.finish(nil)
		}).upid, nil
	}
}
