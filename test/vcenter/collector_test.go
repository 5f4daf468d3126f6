package vcenter_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// stream is the result of a long poll.
type stream struct {
	updates chan types.ObjectUpdate
	err     chan error
}

func (b *bench) watch(client *vim25.Client, spec types.PropertyFilterSpec) *stream {
	collector, err := property.DefaultCollector(client).Create(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(collector.CreateFilter(b.ctx, types.CreateFilter{This: collector.Reference(), Spec: spec})).Error().NotTo(HaveOccurred())
	s := &stream{updates: make(chan types.ObjectUpdate, 1000), err: make(chan error, 1)}
	started := make(chan struct{})
	go func() {
		req := types.WaitForUpdatesEx{This: collector.Reference()}
		for {
			res, err := methods.WaitForUpdatesEx(b.ctx, client, &req)
			if req.Version == "" {
				close(started)
			}
			if err != nil {
				s.err <- err
				return
			}
			req.Version = res.Returnval.Version
			for _, set := range res.Returnval.FilterSet {
				for _, update := range set.ObjectSet {
					s.updates <- update
				}
			}
		}
	}()
	b.Eventually(started).Should(BeClosed())
	return s
}

func (b *bench) watchContainer(client *vim25.Client, paths []string) *stream {
	v, err := view.NewManager(client).CreateContainerView(b.ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	b.Expect(err).NotTo(HaveOccurred())
	return b.watch(client, viewSpec(v.Reference(), "ContainerView", paths))
}

func viewSpec(v types.ManagedObjectReference, kind string, paths []string) types.PropertyFilterSpec {
	return types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{
			Obj: v, Skip: types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: kind, Path: "view"}},
		}},
		PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: paths}},
	}
}

// next returns the next value of a property of an object.
func (s *stream) next(b *bench, obj types.ManagedObjectReference, name string) (any, time.Time) {
	var value any
	b.Eventually(func() bool {
		select {
		case update := <-s.updates:
			for _, change := range update.ChangeSet {
				if update.Obj == obj && change.Name == name {
					value = change.Val
					return true
				}
			}
		default:
		}
		return false
	}).WithPolling(time.Millisecond).Should(BeTrue(), "no change of %s", name)
	return value, time.Now()
}

func (s *stream) kind(b *bench, obj types.ManagedObjectReference, kind types.ObjectUpdateKind) types.ObjectUpdate {
	var found types.ObjectUpdate
	b.Eventually(func() bool {
		select {
		case update := <-s.updates:
			found = update
			return update.Obj == obj && update.Kind == kind
		default:
			return false
		}
	}).WithPolling(time.Millisecond).Should(BeTrue(), "no %s", kind)
	return found
}

func TestContainerViewFollowsVMs(t *testing.T) {
	b := start(t, vcenter.Options{})
	client := b.login(b.server.Userinfo())
	s := b.watchContainer(client, []string{
		"name", "runtime.powerState", "guest.net", "guest.ipAddress", "config.instanceUuid", "config.extraConfig", "config.hardware.memoryMB",
	})
	spec := b.cloneSpec()
	spec.Config = &types.VirtualMachineConfigSpec{InstanceUuid: "50000000-0000-4000-8000-000000000001", MemoryMB: 4096, MemoryHotAddEnabled: types.NewBool(true)}
	vm := b.clone("watched", spec)
	enter := s.kind(b, vm.Reference(), types.ObjectUpdateKindEnter)
	seen := map[string]any{}
	for _, change := range enter.ChangeSet {
		seen[change.Name] = change.Val
	}
	// The VM is complete when it is first seen.
	b.Expect(seen).To(HaveKeyWithValue("name", "watched"))
	b.Expect(seen).To(HaveKeyWithValue("config.instanceUuid", "50000000-0000-4000-8000-000000000001"))
	b.Expect(seen).To(HaveKeyWithValue("runtime.powerState", types.VirtualMachinePowerStatePoweredOff))

	b.done(vm.PowerOn(b.ctx))
	value, _ := s.next(b, vm.Reference(), "runtime.powerState")
	b.Expect(value).To(Equal(types.VirtualMachinePowerStatePoweredOn))

	changed := time.Now()
	b.Expect(b.server.SetGuestAddresses(vm.Reference().Value, b.addresses(vm, "10.0.0.7/24"))).To(Succeed())
	value, when := s.next(b, vm.Reference(), "guest.ipAddress")
	b.Expect(value).To(Equal("10.0.0.7"))
	b.Expect(when.Sub(changed)).To(BeNumerically("<", prompt))

	b.done(vm.Reconfigure(b.ctx, types.VirtualMachineConfigSpec{MemoryMB: 8192}))
	value, _ = s.next(b, vm.Reference(), "config.hardware.memoryMB")
	b.Expect(value).To(BeEquivalentTo(8192))

	changed = time.Now()
	b.Expect(b.server.GuestStopped(b.read(vm).Config.Uuid)).To(Succeed())
	value, when = s.next(b, vm.Reference(), "runtime.powerState")
	b.Expect(value).To(Equal(types.VirtualMachinePowerStatePoweredOff))
	b.Expect(when.Sub(changed)).To(BeNumerically("<", prompt))

	b.done(vm.Destroy(b.ctx))
	s.kind(b, vm.Reference(), types.ObjectUpdateKindLeave)
}

func TestListViewFollowsVMs(t *testing.T) {
	b := start(t, vcenter.Options{})
	first := b.clone("first", b.cloneSpec())
	client := b.login(b.server.Userinfo())
	list, err := view.NewManager(client).CreateListView(b.ctx, []types.ManagedObjectReference{first.Reference()})
	b.Expect(err).NotTo(HaveOccurred())
	s := b.watch(client, viewSpec(list.Reference(), "ListView", []string{"runtime.powerState"}))
	s.kind(b, first.Reference(), types.ObjectUpdateKindEnter)

	second := b.clone("second", b.cloneSpec())
	b.Expect(list.Add(b.ctx, []types.ManagedObjectReference{second.Reference()})).Error().NotTo(HaveOccurred())
	s.kind(b, second.Reference(), types.ObjectUpdateKindEnter)

	b.done(second.PowerOn(b.ctx))
	value, _ := s.next(b, second.Reference(), "runtime.powerState")
	b.Expect(value).To(Equal(types.VirtualMachinePowerStatePoweredOn))

	b.Expect(list.Remove(b.ctx, []types.ManagedObjectReference{second.Reference()})).Error().NotTo(HaveOccurred())
	s.kind(b, second.Reference(), types.ObjectUpdateKindLeave)
	b.done(first.Destroy(b.ctx))
	s.kind(b, first.Reference(), types.ObjectUpdateKindLeave)
}

func TestTasksAreFollowed(t *testing.T) {
	b := start(t, vcenter.Options{Delays: map[string]time.Duration{"CloneVM_Task": 2 * time.Second}})
	client := b.login(b.server.Userinfo())
	s := b.watch(client, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{
			Obj: *client.ServiceContent.TaskManager, Skip: types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "TaskManager", Path: "recentTask"}},
		}},
		PropSet: []types.PropertySpec{{Type: "Task", PathSet: []string{"info"}}},
	})
	requested := time.Now()
	task := b.startClone("followed", b.cloneSpec())
	b.Expect(time.Since(requested)).To(BeNumerically("<", 2*time.Second), "the call waited for its task")

	var states []types.TaskInfoState
	var last types.TaskInfo
	for last.State != types.TaskInfoStateSuccess {
		value, _ := s.next(b, task.Reference(), "info")
		last = value.(types.TaskInfo)
		states = append(states, last.State)
	}
	b.Expect(states[:len(states)-1]).To(ContainElement(types.TaskInfoStateRunning))
	b.Expect(last.Name).To(Equal("CloneVM_Task"))
	b.Expect(last.DescriptionId).To(Equal("VirtualMachine.clone"))
	b.Expect(*last.Entity).To(Equal(b.template().Reference()))
	b.Expect(last.Result).To(BeAssignableToTypeOf(types.ManagedObjectReference{}))
	b.Expect(last.CompleteTime.Sub(*last.StartTime)).To(BeNumerically(">=", 2*time.Second))

	// Calls inside the simulator must not be visible.
	var manager mo.TaskManager
	b.Expect(property.DefaultCollector(b.client).RetrieveOne(b.ctx, *b.client.ServiceContent.TaskManager, []string{"recentTask"}, &manager)).To(Succeed())
	b.Expect(manager.RecentTask).To(ConsistOf(task.Reference()))
}

func TestLostAnswerIsRepeated(t *testing.T) {
	b := start(t, vcenter.Options{})
	collector, err := property.DefaultCollector(b.client).Create(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	template := b.template().Reference()
	b.Expect(collector.CreateFilter(b.ctx, types.CreateFilter{This: collector.Reference(), Spec: types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: template}},
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"config.extraConfig"}}},
	}})).Error().NotTo(HaveOccurred())
	wait := func(ctx context.Context, version string) (*types.UpdateSet, error) {
		res, err := methods.WaitForUpdatesEx(ctx, b.client, &types.WaitForUpdatesEx{This: collector.Reference(), Version: version})
		if err != nil {
			return nil, err
		}
		return res.Returnval, nil
	}
	first, err := wait(b.ctx, "")
	b.Expect(err).NotTo(HaveOccurred())

	// A client that gave up does not take the next change with it.
	short, cancel := context.WithTimeout(b.ctx, 30*time.Millisecond)
	defer cancel()
	_, err = wait(short, first.Version)
	b.Expect(err).To(HaveOccurred())
	b.Expect(b.server.SetGuestInfo(template.Value, "guestinfo.seen", "yes")).To(Succeed())
	second, err := wait(b.ctx, first.Version)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(second.FilterSet).NotTo(BeEmpty())

	again, err := wait(b.ctx, first.Version)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(again).To(Equal(second))

	_, err = wait(b.ctx, "12345")
	b.Expect(err).To(HaveOccurred())
	b.Expect(soap.ToSoapFault(err).VimFault()).To(BeAssignableToTypeOf(types.InvalidCollectorVersion{}))
}

func TestLargeAnswersArePaged(t *testing.T) {
	b := start(t, vcenter.Options{})
	for _, name := range []string{"a", "b", "c"} {
		b.clone(name, b.cloneSpec())
	}
	v, err := view.NewManager(b.client).CreateContainerView(b.ctx, b.client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	b.Expect(err).NotTo(HaveOccurred())
	collector, err := property.DefaultCollector(b.client).Create(b.ctx)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(collector.CreateFilter(b.ctx, types.CreateFilter{
		This: collector.Reference(), Spec: viewSpec(v.Reference(), "ContainerView", []string{"name"}),
	})).Error().NotTo(HaveOccurred())

	seen := map[types.ManagedObjectReference]int{}
	req := types.WaitForUpdatesEx{This: collector.Reference(), Options: &types.WaitOptions{MaxObjectUpdates: 3, MaxWaitSeconds: types.NewInt32(0)}}
	for {
		res, err := methods.WaitForUpdatesEx(b.ctx, b.client, &req)
		b.Expect(err).NotTo(HaveOccurred())
		if res.Returnval == nil {
			break
		}
		req.Version = res.Returnval.Version
		for _, set := range res.Returnval.FilterSet {
			for _, update := range set.ObjectSet {
				seen[update.Obj]++
			}
		}
	}
	b.Expect(seen).To(HaveLen(4))
	b.Expect(seen).To(HaveEach(1))
}
