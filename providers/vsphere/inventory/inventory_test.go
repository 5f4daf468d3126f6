package inventory

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
)

var (
	ourKey  = hypervisor.Key{Namespace: "ns", Name: "m"}
	ourID   = uuid.MustParse("6ba7b810-9dad-51d1-80b4-00c04fd430c8")
	otherID = uuid.MustParse("5032c8a5-9c5e-4a7a-b804-832a03e16381")
	vmRef   = ref{Type: "VirtualMachine", Value: "vm-1"}
	taskRef = ref{Type: "Task", Value: "task-1"}
)

// streamTest is an inventory that receives one update set at a time.
type streamTest struct {
	inv      *Inventory
	notified int
}

func newStreamTest() *streamTest {
	t := &streamTest{}
	t.inv = New(func(hypervisor.Key) { t.notified++ }, func(hypervisor.Key) {}, time.Minute)
	t.inv.Observe(ourID, ourKey, false)
	return t
}

func (t *streamTest) update(kind types.ObjectUpdateKind, obj ref, values ...any) {
	u := types.ObjectUpdate{Kind: kind, Obj: obj}
	for i := 0; i < len(values); i += 2 {
		u.ChangeSet = append(u.ChangeSet, types.PropertyChange{Name: values[i].(string), Op: types.PropertyChangeOpAssign, Val: values[i+1]})
	}
	t.inv.Update(func(o *cache.Objects) []uuid.UUID { return o.Apply([]types.ObjectUpdate{u}) })
	if obj.Type == "Task" {
		t.store(u)
	}
}

// store reads the result or the error of a task, which the stream does not
// report.
func (t *streamTest) store(u types.ObjectUpdate) {
	for _, c := range u.ChangeSet {
		info := *t.inv.objects.Tasks[u.Obj]
		switch c.Name {
		case "info.result":
			info.Result, _ = c.Val.(ref)
		case "info.error":
			f, _ := c.Val.(types.LocalizedMethodFault)
			info.Failure = &f
		default:
			continue
		}
		info.Read = true
		t.inv.RecordTask(u.Obj, &info)
	}
}

func (t *streamTest) look() (hypervisor.State, error) {
	s := t.inv.Observe(ourID, ourKey, false)
	if s.Unknown != nil {
		return s.VM.State, s.Unknown
	}
	if s.Failure.Err != nil {
		return s.VM.State, s.Failure.Err
	}
	return s.VM.State, nil
}

const (
	enter  = types.ObjectUpdateKindEnter
	modify = types.ObjectUpdateKindModify
	leave  = types.ObjectUpdateKindLeave
)

func TestVMAppearsInParts(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.update(enter, vmRef) // still being created
	g.Expect(ta.notified).To(BeZero())
	ta.update(modify, vmRef, "config.instanceUuid", ourID.String())
	g.Expect(ta.notified).To(Equal(1))
	g.Expect(ta.look()).To(Equal(hypervisor.Busy), "its power state is not known")
	ta.update(enter, vmRef, "config.uuid", "423742AA-0000-0000-0000-000000000001",
		"runtime.powerState", types.VirtualMachinePowerStatePoweredOn,
		"runtime.connectionState", types.VirtualMachineConnectionStateConnected)
	g.Expect(ta.look()).To(Equal(hypervisor.Running))
	g.Expect(ta.inv.Observe(ourID, ourKey, false).VM.ProviderID).To(Equal("vsphere://423742aa-0000-0000-0000-000000000001"))
}

func TestForeignVMsAreNotListed(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.update(enter, vmRef, "config.instanceUuid", otherID.String())
	g.Expect(ta.notified).To(BeZero())
}

func TestForeignUpdatesAreIgnored(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.update(enter, vmRef, "config.instanceUuid", ourID.String(), "runtime.powerState", types.VirtualMachinePowerStatePoweredOn)
	g.Expect(ta.look()).To(Equal(hypervisor.Running))
	ta.notified = 0
	bridge := types.GuestNicInfo{DeviceConfigId: -1, IpAddress: []string{"10.244.0.1"}}
	ta.update(modify, vmRef, "guest.net", types.ArrayOfGuestNicInfo{GuestNicInfo: []types.GuestNicInfo{bridge}})
	g.Expect(ta.notified).To(BeZero())
	guestNIC := types.GuestNicInfo{DeviceConfigId: 4000, IpAddress: []string{"10.0.0.1"}}
	ta.update(modify, vmRef, "guest.net", types.ArrayOfGuestNicInfo{GuestNicInfo: []types.GuestNicInfo{bridge, guestNIC}})
	g.Expect(ta.notified).To(Equal(1))
}

// vCenter cannot read the settings of a VM whose host is not reachable. The VM
// must not be reported as deleted.
func TestUnreadableVMIsNotGone(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.update(enter, vmRef, "config.instanceUuid", ourID.String(), "runtime.powerState", types.VirtualMachinePowerStatePoweredOn)
	ta.update(modify, vmRef, "config.instanceUuid", nil, "runtime.connectionState", types.VirtualMachineConnectionStateInaccessible)
	_, err := ta.look()
	g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(vspherev1.VMUnreachableReason))

	o := cache.NewObjects()
	o.Apply([]types.ObjectUpdate{{Kind: enter, Obj: vmRef, ChangeSet: []types.PropertyChange{
		{Name: "runtime.connectionState", Val: types.VirtualMachineConnectionStateInaccessible},
	}}})
	ta.inv.Replace(o)
	_, err = ta.look()
	g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(vspherev1.VMUnreachableReason))
}

// After a restart no earlier cache has the UUID of an unreadable VM. If it has
// the machine's name, the machine must not be reported as deleted.
func TestUnreadableVMSinceStart(t *testing.T) {
	for name, shown := range map[string]string{"Name": "m", "File": "/vmfs/volumes/5f0c/m/m.vmx"} {
		t.Run(name, func(t *testing.T) {
			g, ta := NewWithT(t), newStreamTest()
			ta.update(enter, ref{Type: "VirtualMachine", Value: "vm-2"}, "name", "other")
			g.Expect(ta.look()).To(Equal(hypervisor.Absent))
			ta.update(enter, vmRef, "name", shown)
			g.Expect(ta.look()).To(Equal(hypervisor.Busy))
			g.Expect(ta.inv.Observe(ourID, ourKey, true).VM.State).To(Equal(hypervisor.Busy), "nor when it is going")

			ta.notified = 0
			ta.update(modify, vmRef, "config.instanceUuid", otherID.String())
			g.Expect(ta.notified).To(Equal(1))
			g.Expect(ta.look()).To(Equal(hypervisor.Absent), "the VM belongs to another machine")
			ta.update(modify, vmRef, "name", "m")
			g.Expect(ta.look()).To(Equal(hypervisor.Absent))
		})
	}
}

func TestUnreadableVMThatLeaves(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.update(enter, vmRef, "name", "m")
	g.Expect(ta.look()).To(Equal(hypervisor.Busy))
	ta.notified = 0
	ta.update(leave, vmRef)
	g.Expect(ta.notified).To(Equal(1))
	g.Expect(ta.look()).To(Equal(hypervisor.Absent))
}

func TestTaskThatEndedBeforeItWasKnown(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	g.Expect(ta.inv.Begin(ourID, ourKey, Creating, "Cloning")).To(BeTrue())
	g.Expect(ta.inv.Begin(ourID, ourKey, Creating, "Cloning")).To(BeFalse(), "one at a time")
	g.Expect(ta.look()).To(Equal(hypervisor.Busy))
	ta.update(enter, taskRef, "info.state", types.TaskInfoStateError, "info.error",
		types.LocalizedMethodFault{Fault: &types.NoDiskSpace{}, LocalizedMessage: "Full."})
	g.Expect(ta.look()).To(Equal(hypervisor.Busy))
	ta.notified = 0
	ta.inv.End(ourID, taskRef, nil)
	g.Expect(ta.notified).To(Equal(1))
	_, err := ta.look()
	g.Expect(err).To(MatchError("Full (NoDiskSpace)"))
	_, err = ta.look()
	g.Expect(err).To(MatchError("Full (NoDiskSpace)"), "the failure stays until the next action")
	g.Expect(ta.inv.Begin(ourID, ourKey, Creating, "Cloning")).To(BeTrue())
	_, err = ta.look()
	g.Expect(err).NotTo(HaveOccurred())
}

// The stream reports that a task failed, but not the reason.
func TestErrorOfATaskIsRead(t *testing.T) {
	for _, early := range []bool{false, true} {
		g, ta := NewWithT(t), newStreamTest()
		ta.inv.Begin(ourID, ourKey, Creating, "Cloning")
		if early {
			ta.update(enter, taskRef, "info.state", types.TaskInfoStateError)
			ta.notified = 0
			ta.inv.End(ourID, taskRef, nil)
		} else {
			ta.inv.End(ourID, taskRef, nil)
			ta.notified = 0
			ta.update(enter, taskRef, "info.state", types.TaskInfoStateError)
		}
		g.Expect(ta.notified).To(Equal(1), "the machine has to read the error")
		g.Expect(ta.look()).To(Equal(hypervisor.Busy))
		task, unread := ta.inv.OverdueTask(ourID)
		g.Expect(unread).To(BeTrue())
		g.Expect(task).To(Equal(taskRef))
		ta.update(modify, taskRef, "info.error", types.LocalizedMethodFault{Fault: &types.NoDiskSpace{}, LocalizedMessage: "Full."})
		_, unread = ta.inv.OverdueTask(ourID)
		g.Expect(unread).To(BeFalse())
		_, err := ta.look()
		g.Expect(err).To(MatchError("Full (NoDiskSpace)"))
	}
}

// The clone takes longer than the lag of the stream, and the stream reports
// the task before the VM.
func TestLongCloneWaitsForTheVM(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.inv.Begin(ourID, ourKey, Creating, "Cloning")
	ta.inv.End(ourID, taskRef, nil)
	ta.inv.machines[ourID].action.at = time.Now().Add(-time.Hour)
	ta.update(enter, taskRef, "info.state", types.TaskInfoStateSuccess, "info.result", vmRef)
	g.Expect(ta.look()).To(Equal(hypervisor.Busy), "a second clone would be made")
}

func TestDeletionForgetsFailedCreation(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.inv.Begin(ourID, ourKey, Creating, "Cloning")
	ta.update(enter, taskRef, "info.state", types.TaskInfoStateError, "info.error", types.LocalizedMethodFault{Fault: &types.NoDiskSpace{}})
	ta.inv.End(ourID, taskRef, nil)
	s := ta.inv.Observe(ourID, ourKey, true)
	g.Expect(s).To(Equal(Observation{VM: hypervisor.VM{State: hypervisor.Absent}}))
}

func TestSuccessWaitsForTheVM(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.inv.Begin(ourID, ourKey, Creating, "Cloning")
	ta.inv.End(ourID, taskRef, nil)
	ta.update(enter, taskRef, "info.state", types.TaskInfoStateSuccess, "info.result", vmRef)
	g.Expect(ta.look()).To(Equal(hypervisor.Busy), "a second clone would be made")
	ta.update(enter, vmRef, "config.instanceUuid", ourID.String(), "runtime.powerState", types.VirtualMachinePowerStatePoweredOn)
	g.Expect(ta.look()).To(Equal(hypervisor.Running))
}

func TestDuplicateName(t *testing.T) {
	taken := vmRef
	tests := []struct {
		name   string
		id     any
		state  hypervisor.State
		reason string
	}{
		{"ours", ourID.String(), hypervisor.Busy, ""},
		{"half-made", nil, hypervisor.Busy, ""},
		{"foreign", otherID.String(), hypervisor.Absent, infrav1.NameConflictReason},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, ta := NewWithT(t), newStreamTest()
			ta.inv.Begin(ourID, ourKey, Creating, "Cloning")
			ta.update(enter, vmRef, "config.instanceUuid", tt.id)
			ta.inv.End(ourID, ref{}, &taken)
			state, err := ta.look()
			g.Expect(state).To(Equal(tt.state))
			g.Expect(hypervisor.ReasonFor(err, "")).To(Equal(tt.reason))
		})
	}
}

func TestForgottenTask(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.inv.Begin(ourID, ourKey, Creating, "Cloning")
	ta.inv.End(ourID, taskRef, nil)
	_, overdue := ta.inv.OverdueTask(ourID)
	g.Expect(overdue).To(BeFalse())
	ta.notified = 0
	ta.inv.Replace(cache.NewObjects())
	g.Expect(ta.notified).To(Equal(1))
	g.Expect(ta.look()).To(Equal(hypervisor.Busy), "the list is of recent tasks only: it may run yet")
	task, overdue := ta.inv.OverdueTask(ourID)
	g.Expect(overdue).To(BeTrue())
	g.Expect(task).To(Equal(taskRef))
	ta.inv.RecordTask(task, nil)
	g.Expect(ta.look()).To(Equal(hypervisor.Absent), "vCenter lost the task: the request can be repeated")
}

// A power operation that vCenter rejects because of the VM's power state is
// done only once the stream shows the requested state. The stream may lag; the
// request must not be repeated as fast as vCenter rejects it.
func TestPowerThatIsRefused(t *testing.T) {
	const on, off = types.VirtualMachinePowerStatePoweredOn, types.VirtualMachinePowerStatePoweredOff
	byCall := func(ta *streamTest) {
		err := &hypervisor.Error{Reason: infrav1.HypervisorErrorReason, Err: errors.New("no")}
		if !ta.inv.RecordPowerError(ourID, err) {
			ta.inv.End(ourID, ref{}, nil)
		}
	}
	byTask := func(ta *streamTest) {
		ta.inv.End(ourID, taskRef, nil)
		ta.update(enter, taskRef, "info.state", types.TaskInfoStateError,
			"info.error", types.LocalizedMethodFault{Fault: &types.InvalidPowerState{}, LocalizedMessage: "no"})
	}
	for _, tt := range []struct {
		name    string
		verb    Verb
		refused func(*streamTest)
		// from is the power state that the stream shows at first, and to is the
		// one that it shows in the end.
		from, to types.VirtualMachinePowerState
		says     string
	}{
		{"off, rejected by the request", Stopping, byCall, on, off, "rejected the power-off"},
		{"off, rejected by the task", Stopping, byTask, on, off, "rejected the power-off"},
		{"on, rejected by the request", Starting, byCall, off, on, "rejected the power-on"},
		{"on, rejected by the task", Starting, byTask, off, on, "rejected the power-on"},
		{"cannot go while it is on", Destroying, byTask, off, on, "no (InvalidPowerState)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			for _, late := range []bool{false, true} {
				ta := newStreamTest()
				shown := map[types.VirtualMachinePowerState]hypervisor.State{on: hypervisor.Running, off: hypervisor.Stopped}
				ta.update(enter, vmRef, "config.instanceUuid", ourID.String(), "runtime.powerState", tt.from)
				ta.inv.Begin(ourID, ourKey, tt.verb, "at work")
				tt.refused(ta)
				g.Expect(ta.look()).To(Equal(hypervisor.Busy))
				g.Expect(ta.inv.Begin(ourID, ourKey, tt.verb, "at work")).To(BeFalse(), "no request is sent meanwhile")
				if late {
					ta.inv.machines[ourID].action.at = time.Time{}
					state, err := ta.look()
					g.Expect(state).To(Equal(shown[tt.from]))
					g.Expect(err).To(MatchError(ContainSubstring(tt.says)), "so tries take their time")
				} else {
					ta.notified = 0
					ta.update(modify, vmRef, "runtime.powerState", tt.to)
					g.Expect(ta.notified).To(Equal(1))
					g.Expect(ta.look()).To(Equal(shown[tt.to]))
				}
				g.Expect(ta.inv.Begin(ourID, ourKey, tt.verb, "at work")).To(BeTrue())
			}
		})
	}
}

// The clone of a manager that crashed ends before the stream shows the new VM.
// A machine that is reported as deleted in between would leave its VM behind.
func TestInheritedCloneWaitsForItsVM(t *testing.T) {
	template := ref{Type: "VirtualMachine", Value: "vm-9"}
	tests := []struct {
		name string
		end  func(g *WithT, ta *streamTest)
	}{
		{"made", func(g *WithT, ta *streamTest) {
			ta.update(modify, taskRef, "info.state", types.TaskInfoStateSuccess, "info.result", vmRef)
			ta.update(enter, vmRef)
			g.Expect(ta.inv.ClonesOf(template)).To(BeTrue())
			ta.update(modify, vmRef, "config.instanceUuid", otherID.String())
		}},
		{"failed", func(_ *WithT, ta *streamTest) {
			ta.update(modify, taskRef, "info.state", types.TaskInfoStateError, "info.error", types.LocalizedMethodFault{Fault: &types.NoDiskSpace{}})
		}},
		{"forgotten", func(_ *WithT, ta *streamTest) { ta.update(leave, taskRef) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, ta := NewWithT(t), newStreamTest()
			o := cache.NewObjects()
			o.Tasks[taskRef] = &cache.Task{State: types.TaskInfoStateRunning, Entity: template, Description: cache.CloneTask}
			ta.inv.Replace(o)
			g.Expect(ta.inv.ClonesOf(template)).To(BeTrue())
			tt.end(g, ta)
			g.Expect(ta.notified).To(Equal(1), "the machine is queued once the UUID is known, and not before")
			g.Expect(ta.inv.AnyClones()).To(BeFalse())
		})
	}
}

func TestDestroyedVM(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	ta.update(enter, vmRef, "config.instanceUuid", ourID.String(), "runtime.powerState", types.VirtualMachinePowerStatePoweredOff)
	g.Expect(ta.look()).To(Equal(hypervisor.Stopped))
	ta.inv.Begin(ourID, ourKey, Destroying, "Destroying")
	ta.inv.End(ourID, taskRef, nil)
	ta.update(enter, taskRef, "info.state", types.TaskInfoStateRunning)
	ta.update(leave, vmRef)
	g.Expect(ta.look()).To(Equal(hypervisor.Busy), "its disks are not gone yet")
	ta.notified = 0
	ta.update(modify, taskRef, "info.state", types.TaskInfoStateSuccess)
	g.Expect(ta.notified).To(Equal(1))
	g.Expect(ta.look()).To(Equal(hypervisor.Absent))
}

// A clone that no machine here requested blocks machines. If the clone ends
// while the stream is interrupted, these machines are queued although their
// own VMs look as before.
func TestInheritedCloneEndsUnseen(t *testing.T) {
	g, ta := NewWithT(t), newStreamTest()
	o := cache.NewObjects()
	o.Tasks[taskRef] = &cache.Task{State: types.TaskInfoStateRunning, Description: cache.CloneTask, Entity: vmRef}
	ta.inv.Replace(o)
	g.Expect(ta.inv.ClonesOf(vmRef)).To(BeTrue())
	g.Expect(ta.look()).To(Equal(hypervisor.Absent))

	ta.notified = 0
	ta.inv.Replace(cache.NewObjects())
	g.Expect(ta.inv.ClonesOf(vmRef)).To(BeFalse())
	g.Expect(ta.notified).To(Equal(1))
	ta.notified = 0
	ta.inv.Replace(cache.NewObjects())
	g.Expect(ta.notified).To(BeZero(), "no machine waited")
}
