package ovirtsim

import (
	"log"
)

// startVM starts a VM on a host that has room for it.
func (s *Server) startVM(q *request, v *vm) (*elem, error) {
	action := actRun
	if q.body.get("vm") != nil {
		action = actRunOnce
	}
	if err := permit(v, action); err != nil {
		return nil, err
	}
	if v.status == vmSuspended || v.status == vmPaused {
		return s.resumeVM(q, v)
	}
	if locked := s.lockedDisks(v.attachments); locked != "" {
		return nil, conflict("Cannot run VM: The following disks are locked: %s. Please try again in a few minutes.", locked)
	}
	if v.next != nil {
		v.config, v.next = *v.next, nil
	}
	// The settings of the VM in the action apply to this run only.
	once := v.clone()
	if body := q.body.get("vm"); body != nil {
		if err := once.apply(body); err != nil {
			return nil, err
		}
	}
	if err := s.bootable(v, &once); err != nil {
		return nil, err
	}
	mode, err := initializationMode(q.body)
	if err != nil {
		return nil, err
	}
	drive, err := s.drive(v, &once, mode)
	if err != nil {
		return nil, err
	}
	h, err := s.schedule(v, &once)
	if err != nil {
		return nil, err
	}
	v.drive, v.once = drive, nil
	if q.body.get("vm") != nil {
		v.once = &once
	}
	s.launch(v, h)
	if q.doomed {
		s.failBoot(v)
	}
	s.event(153, "normal", "VM "+v.name+" was started by "+s.opts.Username+" (Host: "+h.name+").", q, v)
	return s.acted(q, "Launching VM "+v.name), nil
}

// bootable refuses to start a VM that has nothing to boot from.
func (s *Server) bootable(v *vm, c *config) error {
	for _, device := range c.boot {
		if device != "hd" {
			return nil
		}
	}
	active := false
	for _, a := range v.attachments {
		active = active || a.active
	}
	switch {
	case len(v.attachments) == 0:
		return conflict("Cannot run VM without at least one bootable disk.\nAlternatives:\n- Create a disk for this VM, and rerun the VM.\n- Change the boot sequence using the Edit VM command (Boot Option Sub-Tab).\n- Use the Run Once command to override the default boot sequence.")
	case !active:
		return conflict("Cannot run VM without at least one active disk.\nPlease activate a disk and rerun the VM.")
	}
	return nil
}

// failBoot ends a start before the VM runs.
func (s *Server) failBoot(v *vm) {
	run := v.run
	s.after(s.opts.Timings[TimeWaitForLaunch]/2, func() {
		if v.run == run {
			s.lost(v)
		}
	})
}

// current is the hardware that a VM runs with, if it runs.
func (v *vm) current() *config {
	if v.once != nil {
		return v.once
	}
	return &v.config
}

// launch brings a VM up on a host.
func (s *Server) launch(v *vm, h *host) {
	v.status, v.host, v.started, v.agent, v.fqdn = vmWaitForLaunch, h.id, s.clock.Now(), nil, ""
	v.system = GuestSystem{}
	v.run++
	run := v.run
	s.call(v, func(described VM) error { return s.guests.PowerOn(s.ctx, described) }, func(err error) {
		if err != nil && v.run == run {
			log.Printf("starting %s: %v", v.name, err)
			s.stopped(v)
			s.event(119, "error", "VM "+v.name+" is down with error. Exit message: "+err.Error()+".", nil, v)
		}
	})
	s.when(TimeWaitForLaunch, func() {
		if v.run == run && v.status == vmWaitForLaunch {
			v.status = vmPoweringUp
			s.when(TimePoweringUp, func() {
				if v.run == run && v.status == vmPoweringUp {
					s.isUp(v)
				}
			})
		}
	})
}

func (s *Server) isUp(v *vm) {
	v.status = vmUp
	v.initialized = true
	s.event(32, "normal", "VM "+v.name+" started on Host "+first(s.hostNames(v))+".", nil, v)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// stopped is a VM that no longer runs.
func (s *Server) stopped(v *vm) {
	v.status, v.host, v.agent, v.fqdn, v.stopped, v.drive, v.once = vmDown, "", nil, "", s.clock.Now(), nil, nil
	v.system = GuestSystem{}
	v.run++
	if v.next != nil {
		v.config, v.next = *v.next, nil
	}
}

// stopVM powers a VM off. A VM that is already down is not an error.
func (s *Server) stopVM(q *request, v *vm) (*elem, error) {
	if v.status == vmDown {
		return s.acted(q, "Stopping VM "+v.name), nil
	}
	if err := permit(v, actStop); err != nil {
		return nil, err
	}
	s.powerDown(q, v, false)
	s.event(33, "normal", "VM "+v.name+" powered off by "+s.opts.Username+".", q, v)
	return s.acted(q, "Stopping VM "+v.name), nil
}

// shutdownVM requests a shutdown from a VM's operating system. A VM without a
// guest agent, or one that is not up, is powered off.
func (s *Server) shutdownVM(q *request, v *vm) (*elem, error) {
	if v.status == vmDown {
		return s.acted(q, "Shutting down VM "+v.name), nil
	}
	if err := permit(v, actShutdown); err != nil {
		return nil, err
	}
	soft := v.status == vmUp
	s.powerDown(q, v, soft)
	s.event(73, "normal", "VM "+v.name+" shutdown was initiated by "+s.opts.Username+".", q, v)
	return s.acted(q, "Shutting down VM "+v.name), nil
}

// powerDown brings a VM down, unless that is to fail: then it never gets there.
func (s *Server) powerDown(q *request, v *vm, soft bool) {
	if v.status == vmSuspended {
		s.stopped(v)
		return
	}
	v.status = vmPoweringDown
	v.run++
	if q.doomed {
		return
	}
	run := v.run
	down := func() {
		if v.run == run && !v.removed {
			s.stopped(v)
			s.event(61, "normal", "VM "+v.name+" is down. Exit message: User shut down from within the guest.", nil, v)
		}
	}
	if s.guests == nil {
		s.when(TimePoweringDown, down)
		return
	}
	s.call(v, func(described VM) error { return s.guests.PowerOff(s.ctx, described, soft) }, func(err error) {
		if err != nil {
			log.Printf("stopping %s: %v", v.name, err)
		}
		down()
	})
}

// rebootVM restarts a VM where it is.
func (s *Server) rebootVM(q *request, v *vm) (*elem, error) {
	if err := permit(v, actReboot); err != nil {
		return nil, err
	}
	v.status, v.agent = vmReboot, nil
	v.run++
	run := v.run
	s.call(v, func(described VM) error {
		if err := s.guests.PowerOff(s.ctx, described, true); err != nil {
			return err
		}
		return s.guests.PowerOn(s.ctx, described)
	}, nil)
	s.when(TimeReboot, func() {
		if v.run == run && v.status == vmReboot {
			s.isUp(v)
		}
	})
	s.event(157, "normal", "User "+s.opts.Username+" initiated reboot of VM "+v.name+".", q, v)
	return s.acted(q, "Rebooting VM "+v.name), nil
}

// suspendVM saves a VM's memory and stops it.
func (s *Server) suspendVM(q *request, v *vm) (*elem, error) {
	if err := permit(v, actSuspend); err != nil {
		return nil, err
	}
	v.status = vmSavingState
	v.run++
	run := v.run
	s.when(TimePoweringDown, func() {
		if v.run == run {
			v.status, v.host = vmSuspended, ""
		}
	})
	return s.acted(q, "Hibernating VM "+v.name), nil
}

func (s *Server) resumeVM(q *request, v *vm) (*elem, error) {
	h, err := s.schedule(v, &v.config)
	if err != nil {
		return nil, err
	}
	v.status, v.host = vmRestoringState, h.id
	v.run++
	run := v.run
	s.when(TimePoweringUp, func() {
		if v.run == run && v.status == vmRestoringState {
			s.isUp(v)
		}
	})
	return s.acted(q, "Launching VM "+v.name), nil
}

// migrateVM moves a VM to another host.
func (s *Server) migrateVM(q *request, v *vm) (*elem, error) {
	if err := permit(v, actMigrate); err != nil {
		return nil, err
	}
	if v.affinity == "pinned" {
		return nil, conflict("Cannot migrate VM. VM is pinned to Host.")
	}
	elsewhere := v.clone()
	if to := q.body.get("host").id(); to != "" {
		elsewhere.affinity, elsewhere.hosts = "pinned", []string{to}
	}
	h, err := s.scheduleExcept(v, &elsewhere, v.host)
	if err != nil {
		return nil, err
	}
	s.migrate(v, h)
	s.event(62, "normal", "Migration started (VM: "+v.name+", Source: "+first(s.hostNames(v))+", Destination: "+h.name+", User: "+s.opts.Username+").", q, v)
	return s.acted(q, "Migrating VM "+v.name), nil
}

// migrate moves a VM, which continues to run meanwhile.
func (s *Server) migrate(v *vm, to *host) {
	v.status = vmMigrating
	v.run++
	run := v.run
	s.when(TimeMigrate, func() {
		if v.run == run && v.status == vmMigrating {
			v.status, v.host = vmUp, to.id
			s.event(63, "normal", "Migration completed (VM: "+v.name+", Destination: "+to.name+").", nil, v)
		}
	})
}

// cancelMigration leaves a VM where it is.
func (s *Server) cancelMigration(q *request, v *vm) (*elem, error) {
	if err := permit(v, actCancelMigrate); err != nil {
		return nil, err
	}
	if v.status != vmMigrating {
		return nil, conflict("Cannot cancel migration. VM is not migrating.")
	}
	v.status = vmUp
	v.run++
	return s.acted(q, "Canceling migration of VM "+v.name), nil
}
