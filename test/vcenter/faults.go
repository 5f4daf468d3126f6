package vcenter

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// failure is a fault with the words vCenter has for it.
type failure struct {
	fault   types.BaseMethodFault
	message string
}

func fail(fault types.BaseMethodFault) *failure {
	return &failure{fault: fault, message: localize(fault)}
}

func soapFault(fault types.BaseMethodFault) *soap.Fault {
	return simulator.Fault(localize(fault), fault)
}

func notFound(ref types.ManagedObjectReference) *types.ManagedObjectNotFound {
	return &types.ManagedObjectNotFound{Obj: ref}
}

// localize returns the English message of vCenter for a fault.
func localize(fault types.BaseMethodFault) string {
	switch f := fault.(type) {
	case *types.InvalidLogin:
		return "Cannot complete login due to an incorrect user name or password."
	case *types.NotAuthenticated:
		return "The session is not authenticated."
	case *types.DuplicateName:
		return fmt.Sprintf("The name '%s' already exists.", f.Name)
	case *types.InvalidPowerState:
		return fmt.Sprintf("The attempted operation cannot be performed in the current state (%s).", powerWord(f.ExistingState))
	case *types.NoDiskSpace:
		return fmt.Sprintf("Insufficient disk space on datastore '%s'.", f.Datastore)
	case *types.ManagedObjectNotFound:
		return fmt.Sprintf("The object 'vim.%s:%s' has already been deleted or has not been completely created", f.Obj.Type, f.Obj.Value)
	case *types.TaskInProgress:
		return "Another task is already in progress."
	case *types.ToolsUnavailable:
		return "Cannot complete operation because VMware Tools is not running in this virtual machine."
	}
	return localizeInput(fault)
}

// localizeInput returns the messages for faults in the request.
func localizeInput(fault types.BaseMethodFault) string {
	switch f := fault.(type) {
	case *types.InvalidDeviceSpec:
		return fmt.Sprintf("Invalid configuration for device '%d'.", f.DeviceIndex)
	case *types.InvalidArgument:
		return "A specified parameter was not correct: " + f.InvalidProperty
	case *types.InvalidVmConfig:
		return "Invalid virtual machine configuration."
	case *types.NotSupported:
		return "The operation is not supported on the object."
	case *types.FileLocked:
		return fmt.Sprintf("Unable to access file %s since it is locked", f.File)
	case *types.ConcurrentAccess:
		return "The operation cannot be performed because another operation changed the object meanwhile."
	case *types.InvalidState:
		return "The operation is not allowed in the current state."
	case *types.NoPermission:
		return "Permission to perform this operation was denied."
	case *types.SystemErrorFault:
		return "A general system error occurred: " + f.Reason
	case *types.RequestCanceled:
		return "The task was canceled by a user."
	case *types.InsufficientStorageSpace:
		return "Insufficient storage space."
	}
	return "A general system error occurred: " + reflect.TypeOf(fault).Elem().Name()
}

func powerWord(state types.VirtualMachinePowerState) string {
	switch state {
	case types.VirtualMachinePowerStatePoweredOn:
		return "Powered on"
	case types.VirtualMachinePowerStatePoweredOff:
		return "Powered off"
	case types.VirtualMachinePowerStateSuspended:
		return "Suspended"
	}
	return string(state)
}

// faults are those to be injected into tasks. Faults of calls are injected by
// the simulator itself.
type faults struct {
	mu    sync.Mutex
	tasks map[string][]*injected
}

type injected struct {
	times   int
	failure failure
}

func newFaults() *faults {
	return &faults{tasks: map[string][]*injected{}}
}

// take returns the next fault for a task of method, if there is one.
func (f *faults) take(method string) *failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.tasks[method]
	if len(queue) == 0 {
		return nil
	}
	first := queue[0]
	if first.times > 0 {
		if first.times--; first.times == 0 {
			f.tasks[method] = queue[1:]
		}
	}
	return &first.failure
}

// InjectFault makes the next calls of a method fail, times times; zero means
// until ClearFaults. A method whose name ends in _Task is accepted, and its
// task fails at its end; InjectCallFault rejects the call itself. Without a
// message the fault has vCenter's message.
func (s *Server) InjectFault(method string, times int, fault types.BaseMethodFault, message string) {
	if !strings.HasSuffix(method, "_Task") {
		s.InjectCallFault(method, times, fault, message)
		return
	}
	if message == "" {
		message = localize(fault)
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.tasks[method] = append(s.faults.tasks[method], &injected{times: times, failure: failure{fault, message}})
}

// InjectCallFault makes the next calls of a method fail themselves, those that
// would start a task as well.
func (s *Server) InjectCallFault(method string, times int, fault types.BaseMethodFault, message string) {
	if message == "" {
		message = localize(fault)
	}
	s.svc.AddFaultRule(&simulator.FaultInjectionRule{
		MethodName:  method,
		ObjectType:  "*",
		ObjectName:  "*",
		Probability: 1,
		FaultType:   simulator.FaultTypeCustom,
		Fault:       fault,
		Message:     message,
		MaxCount:    times,
		Enabled:     true,
	})
}

// ClearFaults forgets all injected faults.
func (s *Server) ClearFaults() {
	s.faults.mu.Lock()
	clear(s.faults.tasks)
	s.faults.mu.Unlock()
	s.svc.ClearFaultRules()
}

// SetHostFull lets a host take no more clones, or take them again.
func (s *Server) SetHostFull(name string, full bool) error {
	err := fmt.Errorf("no host %q", name)
	s.locked(func(ctx *simulator.Context) {
		for _, entity := range ctx.Map.All("HostSystem") {
			if host, ok := entity.(*simulator.HostSystem); ok && host.Name == name {
				s.fullHosts[host.Self] = full
				err = nil
			}
		}
	})
	return err
}

// SetDatastoreFull takes all free space of a datastore away, or gives it back.
func (s *Server) SetDatastoreFull(name string, full bool) error {
	err := fmt.Errorf("no datastore %q", name)
	s.locked(func(ctx *simulator.Context) {
		for _, entity := range ctx.Map.All("Datastore") {
			ds, ok := entity.(*simulator.Datastore)
			if !ok || ds.Name != name {
				continue
			}
			free := ds.Summary.Capacity
			if full {
				free = 0
			}
			ctx.Update(ds, []types.PropertyChange{{Name: "summary.freeSpace", Val: free}})
			ds.Info.GetDatastoreInfo().FreeSpace = free
			err = nil
		}
	})
	return err
}
