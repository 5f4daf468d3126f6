package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/input"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// worldTick is the time that passes with each tick.
const worldTick = 10 * time.Second

// world is a workload cluster on hosts, for a control plane in the real API: it
// does for Machines the work of core Cluster API and the bootstrap provider,
// implements etcd's rules, and records violations of invariants.
type world struct {
	fakeClusters

	rig   *rig
	now   time.Time
	hosts map[string]*worldHost
	// members are etcd's, by name of their host.
	members []etcd.Member
	lastID  uint64
	inits   int
	// kubeadm is the version in kubeadm's stored configuration, and stored all
	// of it; forgot is true while a user has deleted it.
	kubeadm string
	stored  kubeadm.Document
	forgot  bool
	// sick are the machines with a failed MachineHealthCheck; down those whose
	// host is off.
	sick, down map[string]bool
	// failInit is the number of inits that fail.
	failInit int
	// stubborn leaders do not transfer their leadership.
	stubborn bool
	// refusesVersion is the error of the workload cluster for another
	// configuration.
	refusesVersion error
	// initUnknown is true while the workload cluster was not probed, as after a
	// start of the process; unseen while the caches report it as unreachable.
	initUnknown, unseen bool
	// onAct is called before each change of the workload cluster and may return
	// an error.
	onAct func() error
	// mayFail is the expected error of a reconcile.
	mayFail string
	// wrongs are the violated invariants.
	wrongs []string
	// torn are nodes that were left when a user removed everything from their
	// machine.
	torn map[string]bool
	// stuck is true while no change in place ends.
	stuck bool
	// expire is when the certificates of all machines expire, as it is observed; zero
	// if unknown.
	expire time.Time
	// worker is the ID of the CAs that a worker trusts, if there is one.
	worker *string
	// leads and versions are the received requests.
	leads, versions []string
}

var errStubborn = errors.New("the leadership stays here")

type worldHost struct {
	mode    string
	failed  bool
	node    bool
	drained bool
	// authorities is the ID of the CAs that its Node reports.
	authorities string
}

func newWorld(r *rig) *world {
	return &world{rig: r, now: time.Now(), hosts: map[string]*worldHost{}, sick: map[string]bool{}, down: map[string]bool{}, torn: map[string]bool{}}
}

// reconciler returns a reconciler for this world.
func (w *world) reconciler(config *rest.Config) *Reconciler {
	GinkgoHelper()
	r := direct(config, w)
	// It drops events: this test does not read them.
	r.Recorder = &events.FakeRecorder{}
	r.Now = func() time.Time { return w.now }
	return r
}

func (w *world) wrongf(format string, args ...any) {
	w.wrongs = append(w.wrongs, fmt.Sprintf(format, args...))
}

// up reports whether a host runs.
func (w *world) up(name string) bool { return w.hosts[name] != nil && !w.down[name] }

func (w *world) quorum() bool {
	voters, answering := 0, 0
	for _, m := range w.members {
		if m.Learner {
			continue
		}
		voters++
		if w.up(m.Name) {
			answering++
		}
	}
	return answering > voters/2
}

// look returns the state of the workload cluster.
func (w *world) look() facts.Cluster {
	if len(w.members) == 0 || !w.quorum() {
		return facts.Cluster{Problem: "The API server does not answer"}
	}
	f := facts.Cluster{Answers: true, KubeadmConfig: true, KubeadmVersion: w.kubeadm, KubeadmStored: w.stored, Etcd: &etcd.Health{}}
	if w.forgot {
		f.KubeadmConfig, f.KubeadmVersion, f.KubeadmStored = false, "", kubeadm.Document{}
	}
	runs := facts.Component{State: facts.Running}
	for name, host := range w.hosts {
		if host.node {
			f.Nodes = append(f.Nodes, facts.Node{
				Name: name, ControlPlane: true, Machine: name, Ready: w.up(name), APIServer: w.kubeadm, CertificatesExpire: w.expire, Authorities: host.authorities,
				Components: facts.Components{APIServer: runs, ControllerManager: runs, Scheduler: runs, Etcd: runs},
			})
		}
	}
	if w.worker != nil {
		f.Nodes = append(f.Nodes, facts.Node{Name: "worker", Ready: true, Authorities: *w.worker})
	}
	for name := range w.torn {
		f.Nodes = append(f.Nodes, facts.Node{Name: name, ControlPlane: true, Machine: name})
	}
	w.elect()
	for _, m := range w.members {
		m.Answers = w.up(m.Name)
		f.Etcd.Members = append(f.Etcd.Members, m)
	}
	return f
}

// elect elects a leader if none runs.
func (w *world) elect() {
	leader := slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.Leader && w.up(m.Name) })
	if leader < 0 {
		leader = slices.IndexFunc(w.members, func(m etcd.Member) bool { return !m.Learner && w.up(m.Name) })
	}
	for i := range w.members {
		w.members[i].Leader = i == leader
	}
}

// Observe implements WorkloadClusters.
func (w *world) Observe(ctx context.Context, cluster client.ObjectKey, machines []*clusterv1.Machine) facts.Cluster {
	if w.unseen {
		return facts.Cluster{Problem: "The API server does not answer"}
	}
	return w.Fresh(ctx, cluster, machines)
}

// Fresh implements WorkloadClusters.
func (w *world) Fresh(context.Context, client.ObjectKey, []*clusterv1.Machine) facts.Cluster {
	if w.initUnknown {
		return facts.Cluster{Pending: true, Problem: "The API server does not answer", Again: timelimits.CallTimeout}
	}
	return w.look()
}

func (w *world) acting() error {
	if w.onAct == nil {
		return nil
	}
	return w.onAct()
}

// RemoveMember implements WorkloadClusters.
func (w *world) RemoveMember(ctx context.Context, _ client.ObjectKey, _ []facts.Node, id uint64) error {
	at := slices.IndexFunc(w.members, func(m etcd.Member) bool { return m.ID == id })
	if at < 0 {
		return w.acting()
	}
	name := w.members[at].Name
	if w.members[at].Leader && len(w.members) > 1 && !w.stubborn {
		w.wrongf("member %s is removed while it leads", name)
	}
	machine := &clusterv1.Machine{}
	err := testEnv.Client.Get(ctx, w.rig.key(name), machine)
	if _, joined := machine.Annotations[controlplanev1.JoinedAnnotation]; err == nil && !joined {
		w.wrongf("member %s is removed before it is noted that it was one", name)
	}
	if err == nil && machine.DeletionTimestamp.IsZero() {
		w.wrongf("member %s is removed while its machine stays", name)
	}
	w.members = slices.Delete(w.members, at, at+1)
	if !w.quorum() {
		w.wrongf("member %s is removed and the quorum with it", name)
	}
	w.removed = append(w.removed, id)
	return w.acting()
}

// MoveLeader implements WorkloadClusters.
func (w *world) MoveLeader(_ context.Context, _ client.ObjectKey, node string, to uint64) error {
	w.leads = append(w.leads, node)
	if w.stubborn {
		return errStubborn
	}
	for i := range w.members {
		if w.members[i].Name == node && !w.members[i].Leader {
			return errors.New("not the leader")
		}
	}
	for i := range w.members {
		w.members[i].Leader = w.members[i].ID == to
	}
	return w.acting()
}

// SetVersion implements WorkloadClusters.
func (w *world) SetVersion(_ context.Context, _ client.ObjectKey, want kubeadm.Upgrade) error {
	if w.refusesVersion != nil {
		return w.refusesVersion
	}
	stored, err := kubeadm.NextConfiguration(w.stored, want.Configuration, want.Version)
	if err != nil {
		return err
	}
	if w.kubeadm != want.Version {
		w.versions = append(w.versions, want.Version)
	}
	w.stored, w.kubeadm = stored, want.Version
	return w.acting()
}

// DeleteNode implements WorkloadClusters.
func (w *world) DeleteNode(_ context.Context, _ client.ObjectKey, name string) error {
	delete(w.torn, name)
	return w.acting()
}

// tick advances the world.
func (w *world) tick(ctx context.Context) {
	GinkgoHelper()
	w.now = w.now.Add(worldTick)
	machines, err := w.rig.machines(ctx)
	Expect(err).NotTo(HaveOccurred())
	exist := map[string]bool{}
	for i := range machines {
		exist[machines[i].Name] = true
		if machines[i].DeletionTimestamp.IsZero() {
			w.live(ctx, &machines[i])
		} else {
			w.die(ctx, &machines[i])
		}
	}
	for name := range w.hosts {
		if !exist[name] {
			delete(w.hosts, name)
		}
	}
	w.join()
}

// live does for a machine the work of core Cluster API and the bootstrap
// provider.
func (w *world) live(ctx context.Context, machine *clusterv1.Machine) {
	GinkgoHelper()
	if controllerutil.AddFinalizer(machine, clusterv1.MachineFinalizer) {
		w.write(testEnv.Client.Update(ctx, machine))
	}
	host := w.hosts[machine.Name]
	if host == nil {
		w.rig.adopt(ctx, machine)
		w.boot(ctx, machine)
		return
	}
	if host.mode == input.ModeInit && !host.failed && !host.node {
		w.init(machine.Name, machine.Spec.Version, host)
	}
	w.grow(ctx, machine)
	w.update(ctx, machine)
	if host.node && !machine.Status.NodeRef.IsDefined() {
		machine.Status.NodeRef.Name = machine.Name
		w.write(testEnv.Client.Status().Update(ctx, machine))
	}
	if w.sick[machine.Name] && !conditions.Has(machine, clusterv1.MachineOwnerRemediatedCondition) {
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineHealthCheckUnhealthyNodeReason,
		})
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		})
		w.write(testEnv.Client.Status().Update(ctx, machine))
	}
}

// boot creates bootstrap data for the machine and starts a host with it.
func (w *world) boot(ctx context.Context, machine *clusterv1.Machine) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(testEnv.Client.Get(ctx, w.rig.key(clusterName), cluster)).To(Succeed())
	order, err := initlock.OrderFor(ctx, testEnv.Client, cluster, machine.Name)
	Expect(err).NotTo(HaveOccurred())
	if order == initlock.Wait {
		return
	}
	mode := "JoinControlPlane"
	if order == initlock.Initialize {
		mode = input.ModeInit
	}
	data := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: machine.Namespace, Name: machine.Name, Annotations: map[string]string{bootstrapv1.ModeAnnotation: mode},
	}}
	Expect(testEnv.Client.Create(ctx, data)).To(Succeed())
	machine.Spec.Bootstrap.DataSecretName = ptr.To(machine.Name)
	machine.Spec.ProviderID = "world://" + machine.Name
	w.write(testEnv.Client.Update(ctx, machine))
	w.hosts[machine.Name] = &worldHost{mode: mode, authorities: w.authorities(ctx).ID}
}

func (w *world) init(name, version string, host *worldHost) {
	if w.failInit > 0 {
		w.failInit--
		host.failed = true
		return
	}
	if len(w.members) > 0 {
		w.wrongf("%s initializes beside another init", name)
	}
	w.inits++
	w.lastID++
	w.members = []etcd.Member{{ID: w.lastID, Name: name, Leader: true}}
	host.node, w.kubeadm = true, version
}

// join advances one join: etcd accepts one learner at a time, and kubeadm none
// beside a member that does not answer.
func (w *world) join() {
	for i := range w.members {
		if w.members[i].Learner && w.up(w.members[i].Name) {
			w.members[i].Learner = false
			w.hosts[w.members[i].Name].node = true
			return
		}
	}
	if len(w.members) == 0 || slices.ContainsFunc(w.members, func(m etcd.Member) bool { return !w.up(m.Name) }) {
		return
	}
	for name, host := range w.hosts {
		isMember := slices.ContainsFunc(w.members, func(m etcd.Member) bool { return m.Name == name })
		if host.mode != input.ModeInit && !host.node && !host.drained && !isMember && !w.down[name] {
			w.lastID++
			w.members = append(w.members, etcd.Member{ID: w.lastID, Name: name, Learner: true})
			return
		}
	}
}

// die does for a machine that is being deleted the work of core Cluster API:
// drain, wait for hooks, delete the host.
func (w *world) die(ctx context.Context, machine *clusterv1.Machine) {
	GinkgoHelper()
	if host := w.hosts[machine.Name]; host != nil && !host.drained {
		host.drained = true
		return
	}
	if _, held := machine.Annotations[controlplanev1.MachineHookAnnotation]; held {
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
			Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
		})
		w.write(testEnv.Client.Status().Update(ctx, machine))
		return
	}
	before := len(w.members) == 0 || w.quorum()
	delete(w.hosts, machine.Name)
	if len(w.members) > 0 && before && !w.quorum() && w.rigLives(ctx) {
		w.wrongf("machine %s was released and the quorum was lost with it", machine.Name)
	}
	if w.rigLives(ctx) && len(w.hosts) == 0 {
		w.members = nil
	}
	for _, o := range []client.Object{&vspherev1.NovaVSphereMachine{}, &bootstrapv1.NovaConfig{}, &corev1.Secret{}} {
		o.SetNamespace(machine.Namespace)
		o.SetName(machine.Name)
		Expect(client.IgnoreNotFound(testEnv.Client.Delete(ctx, o))).To(Succeed())
	}
	controllerutil.RemoveFinalizer(machine, clusterv1.MachineFinalizer)
	w.write(testEnv.Client.Update(ctx, machine))
}

// rigLives reports whether the control plane is not being deleted.
func (w *world) rigLives(ctx context.Context) bool {
	c, err := w.rig.controlPlane(ctx)
	return err == nil && c.DeletionTimestamp.IsZero()
}

// write ignores conflicts with another writer: the next tick tries again.
func (w *world) write(err error) {
	GinkgoHelper()
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
}

// drive runs the world and the reconciler until done is true.
func (w *world) drive(ctx context.Context, reconciler *Reconciler, done func() bool) {
	GinkgoHelper()
	w.driveWith(ctx, func() *Reconciler { return reconciler }, done)
}

// driveWith creates the reconciler again each time, because it may have
// crashed.
func (w *world) driveWith(ctx context.Context, alive func() *Reconciler, done func() bool) {
	GinkgoHelper()
	var last error
	for range 400 {
		w.tick(ctx)
		Expect(w.wrongs).To(BeEmpty())
		if done() {
			return
		}
		_, err := alive().Reconcile(ctx, ctrl.Request{NamespacedName: w.rig.key(controlPlaneName)})
		tolerated := w.mayFail != "" && err != nil && strings.Contains(err.Error(), w.mayFail)
		if err != nil && !tolerated && !errors.Is(err, errStubborn) && !errors.Is(err, errDead) && !apierrors.IsConflict(err) {
			Expect(err).To(MatchError(ContainSubstring(errDead.Error())))
		}
		if err != nil {
			last = err
		}
	}
	c, err := w.rig.controlPlane(ctx)
	Expect(err).NotTo(HaveOccurred())
	machines, err := w.rig.machines(ctx)
	Expect(err).NotTo(HaveOccurred())
	var states []string
	for i := range machines {
		states = append(states, fmt.Sprintf("%s deleting=%t annotations=%v", machines[i].Name, !machines[i].DeletionTimestamp.IsZero(), machines[i].Annotations))
	}
	Fail(fmt.Sprintf("it does not get there: %v\n%+v\n%v\n%v", c.Status.Conditions, w.members, states, last))
}

// whole reports whether n machines are voting members and nodes, and none is
// being deleted or outdated.
func (w *world) whole(ctx context.Context, n int) func() bool {
	return func() bool {
		machines, err := w.rig.machines(ctx)
		if err != nil || len(machines) != n || len(w.members) != n {
			return false
		}
		c, err := w.rig.controlPlane(ctx)
		if err != nil {
			return false
		}
		for i := range machines {
			m := &machines[i]
			voter := slices.ContainsFunc(w.members, func(member etcd.Member) bool { return member.Name == m.Name && !member.Learner })
			if !voter || !m.DeletionTimestamp.IsZero() || !m.Status.NodeRef.IsDefined() || m.Spec.Version != c.Spec.Version {
				return false
			}
		}
		return true
	}
}

// usersKubeconfig is a kubeconfig that a user could have created.
func usersKubeconfig() []byte {
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"mine": {Server: "https://127.0.0.1:1"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"kubernetes-admin": {}},
		Contexts:       map[string]*clientcmdapi.Context{"mine": {Cluster: "mine", AuthInfo: "kubernetes-admin"}},
		CurrentContext: "mine",
	})
	if err != nil {
		panic(err)
	}
	return data
}
