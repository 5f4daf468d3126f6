package vsphere

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	vcenterclient "github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

var errCrashed = errors.New("the process is dead")

// crashPoint is the network of a process that crashes at a given request:
// before the request is sent, or after vCenter has executed it and before the
// response is read. From then on no request is sent, not even a logout.
type crashPoint struct {
	// at is the request: its method and its number among requests of that
	// method.
	at    string
	after bool

	mu    sync.Mutex
	count map[string]int
	// sent are all requests except for long polls, whose number varies.
	sent    []string
	stopped context.Context //nolint:containedctx // the process's own
	stop    context.CancelFunc
}

func newCrashPoint(t *testing.T, at string, after bool) *crashPoint {
	t.Helper()
	f := &crashPoint{at: at, after: after, count: map[string]int{}}
	f.stopped, f.stop = context.WithCancel(t.Context())
	return f
}

// wrap is for Options. All clients of one process share the fuse.
func (f *crashPoint) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return f.roundTrip(next, req) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func (f *crashPoint) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	name, err := f.name(req)
	if err != nil {
		return nil, err
	}
	if f.stopped.Err() != nil {
		return nil, errCrashed
	}
	if name == f.at && !f.after {
		f.stop()
		return nil, errCrashed
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(f.stopped, cancel)()
	res, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if name == f.at {
		f.stop()
		return nil, errCrashed
	}
	if err != nil {
		return nil, err
	}
	whole := *res
	whole.Body = io.NopCloser(bytes.NewReader(body))
	return &whole, nil
}

var soapBody = regexp.MustCompile(`<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)

// name counts the request and returns its name.
func (f *crashPoint) name(req *http.Request) (string, error) {
	method := vcenterclient.RESTMethod(req)
	if strings.HasPrefix(req.URL.Path, "/sdk") && req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return "", err
		}
		_ = req.Body.Close()
		req.Body = io.NopCloser(bytes.NewReader(body))
		if found := soapBody.FindSubmatch(body); found != nil {
			method = string(found[1])
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[method]++
	name := fmt.Sprintf("%s#%d", method, f.count[method])
	if method != vcenterclient.PollMethod {
		f.sent = append(f.sent, name)
	}
	return name, nil
}

// crashRun is the life of two machines, which share an anti-affinity group. A
// process that may crash handles them, and then the processes that follow it.
type crashRun struct {
	b          *bed
	name       string
	options    Options
	connector  *Connector
	crashPoint *crashPoint
	machines   []*machineRun
}

// newCrashRun creates the machines. They have everything that takes further
// requests: a group, and a tag and an attribute that do not exist yet.
func (b *bed) newCrashRun(name string, f *crashPoint) *crashRun {
	j := &crashRun{b: b, name: name, crashPoint: f, options: b.options}
	j.options.wrap = f.wrap
	for _, m := range b.machines(name, 2) {
		m.Labels[clusterv1.MachineDeploymentNameLabel] = name
		m.Spec.AntiAffinity = infrav1.AntiAffinityPreferred
		m.Spec.Tags = []vspherev1.NovaVSphereTag{{Category: name, Name: "blue"}}
		m.Spec.CustomAttributes = []vspherev1.NovaVSphereCustomAttribute{{Name: name, Value: "17"}}
		m.Spec.CreateMissingTags = ptr.To(true)
		j.machines = append(j.machines, &machineRun{machine: m, options: createOptions, graceful: true})
	}
	return j
}

// runUntilDone reconciles the machines until they are up, or until they are
// deleted if they are being deleted.
func (j *crashRun) runUntilDone(what string) error {
	for range 3 {
		if err := j.runOnce(); !errors.Is(err, errCrashed) {
			if err != nil {
				return fmt.Errorf("%s of %s, crash at %s: %w", what, j.name, j.crashPoint.at, err)
			}
			return nil
		}
	}
	return fmt.Errorf("%s of %s: it crashes again and again", what, j.name)
}

// runOnce runs one process until it ends or crashes.
func (j *crashRun) runOnce() error {
	if j.crashPoint.stopped.Err() != nil {
		j.options.wrap = nil
	}
	j.connector = NewConnector(j.b.objects, j.options)
	defer j.connector.Close()
	p := j.b.startController(j.connector)
	defer p.stopAll()
	var died <-chan struct{}
	if j.crashPoint.stopped.Err() == nil {
		died = j.crashPoint.stopped.Done()
	}
	for _, c := range j.machines {
		c.done = make(chan struct{})
		p.mu.Lock()
		p.runs[hypervisor.KeyOf(c.machine)] = c
		p.mu.Unlock()
		p.queue.Add(hypervisor.KeyOf(c.machine))
	}
	// Many machines are deleted at the same time.
	deadline := time.After(3 * soon)
	for _, c := range j.machines {
		select {
		case <-c.done:
		case <-died:
			return errCrashed
		case <-deadline:
			d, err := j.connector.Connect(j.b.ctx(), c.machine)
			if err != nil {
				return err
			}
			vm, err := d.Observe(j.b.ctx(), c.machine)
			return fmt.Errorf("%s does not get there: %+v, %w", c.machine.Name, vm, err)
		}
	}
	return nil
}

// reconcile runs the whole life and returns the first error.
func (j *crashRun) reconcile() error {
	if err := j.runUntilDone("creation"); err != nil {
		return err
	}
	vms := j.vms()
	if len(vms) != len(j.machines) {
		return fmt.Errorf("crash at %s: %d VMs for %d machines", j.crashPoint.at, len(vms), len(j.machines))
	}
	if rules := j.rules(); len(rules) != 1 || len(rules[0].VMs) != len(j.machines) {
		return fmt.Errorf("crash at %s: the group is %+v", j.crashPoint.at, rules)
	}
	for _, vm := range vms {
		if _, left := vm.ExtraConfig["guestinfo.userdata"]; left {
			return fmt.Errorf("crash at %s: the user data is still in the settings of %s", j.crashPoint.at, vm.Name)
		}
		if err := j.b.vc.SetToolsRunning(vm.Ref, true); err != nil {
			return err
		}
	}
	for _, c := range j.machines {
		c.machine = markDeleting(c.machine)
	}
	if err := j.runUntilDone("deletion"); err != nil {
		return err
	}
	if left := j.vms(); len(left) > 0 {
		return fmt.Errorf("crash at %s: %d VMs are left", j.crashPoint.at, len(left))
	}
	if left := j.rules(); len(left) > 0 {
		return fmt.Errorf("crash at %s: the group is left: %+v", j.crashPoint.at, left)
	}
	for _, c := range j.machines {
		if c.lost {
			return fmt.Errorf("crash at %s: %s was taken for lost", j.crashPoint.at, c.machine.Name)
		}
	}
	return nil
}

// vms returns all VMs of the machines, by name or by UUID.
func (j *crashRun) vms() (found []vcenter.VM) {
	for _, vm := range j.b.vc.VMs() {
		for _, c := range j.machines {
			if vm.Name == c.machine.Name || vm.InstanceUUID == j.b.id(c.machine).String() {
				found = append(found, vm)
			}
		}
	}
	return found
}

func (j *crashRun) rules() (found []vcenter.Rule) {
	for _, rule := range j.b.vc.Rules() {
		if rule.Name == spec.RuleName(j.b.cluster.Annotations[infrav1.ClusterIDAnnotation], namespace, j.name) {
			found = append(found, rule)
		}
	}
	return found
}

// A process that crashes at any request, before it was sent or after vCenter
// has executed it, is followed by another process. That process ends up with
// one VM for each machine, everything synced, and then with none. The requests
// are those of a run without a crash.
func TestCrash(t *testing.T) {
	t.Parallel()
	// Several test environments run at a time, because most of a run is
	// waiting.
	beds := make([]*bed, 8)
	for i := range beds {
		beds[i] = newBedWithHosts(t)
		beds[i].options.timeouts.MinRetry = 20 * time.Millisecond
		beds[i].options.timeouts.Lag = 2 * time.Second
	}
	b := beds[0]
	whole := newCrashPoint(t, "", false)
	b.Expect(b.newCrashRun("whole", whole).reconcile()).To(Succeed())
	points := whole.sent
	t.Logf("%d requests in the life of two machines: %v", len(points), points)
	for _, method := range []string{"Login", "CloneVM_Task", "ReconfigureComputeResource_Task", "SetField", "ReconfigVM_Task", "ShutdownGuest", "Destroy_Task"} {
		b.Expect(points).To(ContainElement(HavePrefix(method)), "the life is a whole one")
	}

	for _, point := range points {
		method, _, _ := strings.Cut(point, "#")
		_, known := needs(method)
		b.Expect(known).To(BeTrue(), "the privileges for %s are not listed", method)
	}

	var mu sync.Mutex
	var wrong []error
	blown := 0
	crash := func(b *bed, i int, after bool) {
		f := newCrashPoint(t, points[i], after)
		err := b.newCrashRun(fmt.Sprintf("at-%d-%t", i, after), f).reconcile()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			wrong = append(wrong, fmt.Errorf("after=%t: %w", after, err))
		}
		if f.stopped.Err() != nil {
			blown++
		}
	}
	var crashRuns errgroup.Group
	for lane, b := range beds {
		crashRuns.Go(func() error {
			for i := lane; i < len(points); i += len(beds) {
				crash(b, i, false)
				// A read whose response is lost leaves the same state as a read
				// that was not sent.
				if !strings.HasPrefix(points[i], "Retrieve") {
					crash(b, i, true)
				}
			}
			return nil
		})
	}
	b.Expect(crashRuns.Wait()).To(Succeed())
	b.Expect(errors.Join(wrong...)).NotTo(HaveOccurred())
	t.Logf("%d crashes at %d points, before and after", blown, len(points))
	b.Expect(blown).To(BeNumerically(">=", len(points)), "the order of requests differs a little between runs")
}

// A foreign VM with the machine's name is never read as ours and never
// changed: in the same folder or another, on or off, also when the machine is
// deleted, and when the machine never had a VM.
func TestForeignVM(t *testing.T) {
	for _, on := range []bool{true, false} {
		for _, same := range []bool{true, false} {
			t.Run(fmt.Sprintf("on=%t,sameFolder=%t", on, same), func(t *testing.T) {
				b := newBedWith(t, vcenter.Options{Inventory: vcenter.Inventory{Folders: []string{vcenter.DefaultFolder, "other"}}})
				b.foreign("m", on, same)
				before := b.vmNamed("m")
				m := b.machine("m")
				b.waitForState(m, hypervisor.Absent)

				never := markDeleting(m)
				b.waitForState(never, hypervisor.Absent)
				b.Expect(b.connect(never).Delete(b.ctx(), never)).To(Succeed())
				b.Expect(b.connect(never).Shutdown(b.ctx(), never)).To(Succeed())
				b.Expect(b.connect(never).Start(b.ctx(), never)).To(Succeed())
				b.Expect(b.vmNamed("m")).To(Equal(before), "a machine that never had a VM leaves it alone")

				b.Expect(b.connect(m).Create(b.ctx(), m, createOptions)).To(Succeed())
				if same {
					b.Expect(b.waitForError(m, infrav1.NameConflictReason)).To(MatchError(ContainSubstring("does not belong to this machine")))
					b.waitForState(m, hypervisor.Absent)
				} else {
					b.waitForState(m, hypervisor.Running)
				}
				b.destroyed(markDeleting(m))
				b.Expect(b.vmNamed("m")).To(Equal(before), "it is as it was")
				for _, method := range []string{"PowerOffVM_Task", "Destroy_Task"} {
					want := 1
					if same {
						want = 0
					}
					b.Expect(b.vc.Requests()[method]).To(Equal(want), method)
				}
			})
		}
	}
}

// foreign creates a foreign VM, in the folder of machines or another folder.
func (b *bed) foreign(name string, on, same bool) {
	b.t.Helper()
	finder := find.NewFinder(b.admin().Client)
	dc, err := finder.Datacenter(b.ctx(), "DC0")
	b.Expect(err).NotTo(HaveOccurred())
	finder.SetDatacenter(dc)
	template, err := finder.VirtualMachine(b.ctx(), vcenter.DefaultTemplate)
	b.Expect(err).NotTo(HaveOccurred())
	where := vcenter.DefaultFolder
	if !same {
		where = "other"
	}
	folder, err := finder.Folder(b.ctx(), where)
	b.Expect(err).NotTo(HaveOccurred())
	pool, err := finder.ResourcePool(b.ctx(), "DC0_C0_RP1")
	b.Expect(err).NotTo(HaveOccurred())
	to := pool.Reference()
	b.wait(template.Clone(b.ctx(), folder, name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &to}, PowerOn: on,
	}))
	b.vc.ResetRequests()
}
