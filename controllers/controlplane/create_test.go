package controlplane

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/internal/etcd"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/facts"
	"github.com/nova-platform/cluster-api-provider-nova/test/scopetest"
)

var _ = Describe("Creating machines", func() {
	It("creates all replicas at once, spread over the failure domains", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Config.PreKubeadmCommands = []string{"true"}
			c.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"team": "a"}
			c.Spec.MachineTemplate.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60))
		})
		cluster := &clusterv1.Cluster{}
		Expect(testEnv.Client.Get(ctx, r.key(clusterName), cluster)).To(Succeed())
		for _, name := range []string{"x", "y", "z"} {
			cluster.Status.FailureDomains = append(cluster.Status.FailureDomains, clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(true)})
		}
		Expect(testEnv.Client.Status().Update(ctx, cluster)).To(Succeed())
		r.reconcileUntilIdle(ctx, direct(testEnv.Config, &fakeClusters{}))

		var domains []string
		for _, m := range r.expectMachines(ctx, 3) {
			domains = append(domains, m.Spec.FailureDomain)
			Expect(metav1.GetControllerOf(&m)).To(HaveField("Kind", scope.Kind))
			Expect(m.Labels).To(And(HaveKeyWithValue(clusterv1.MachineControlPlaneLabel, ""), HaveKeyWithValue("team", "a"),
				HaveKeyWithValue(clusterv1.ClusterNameLabel, clusterName), HaveKeyWithValue(clusterv1.MachineControlPlaneNameLabel, controlPlaneName)))
			Expect(m.Spec).To(And(
				HaveField("Version", "v1.36.3"), HaveField("ClusterName", clusterName),
				HaveField("InfrastructureRef", clusterv1.ContractVersionedObjectReference{
					APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereMachine", Name: m.Name,
				}),
				HaveField("Bootstrap.ConfigRef", clusterv1.ContractVersionedObjectReference{
					APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: m.Name,
				}),
				HaveField("MinReadySeconds", HaveValue(BeEquivalentTo(0))),
				HaveField("Deletion.NodeDrainTimeoutSeconds", HaveValue(BeEquivalentTo(60)))))
			infra := &vspherev1.NovaVSphereMachine{}
			Expect(testEnv.Client.Get(ctx, r.key(m.Name), infra)).To(Succeed())
			Expect(infra.Spec.Template.Name).To(Equal("debian"))
			Expect(infra.Labels).To(HaveKeyWithValue("team", "a"))
			Expect(infra.Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, "template"))
			config := &bootstrapv1.NovaConfig{}
			Expect(testEnv.Client.Get(ctx, r.key(m.Name), config)).To(Succeed())
			Expect(config.Spec.PreKubeadmCommands).To(Equal([]string{"true"}))
			Expect(config.Labels).To(HaveKeyWithValue(clusterv1.MachineControlPlaneLabel, ""))
		}
		Expect(domains).To(ConsistOf("x", "y", "z"))
		c, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Status.Replicas).To(HaveValue(BeEquivalentTo(3)))
		Expect(c.Status.UpToDateReplicas).To(HaveValue(BeEquivalentTo(3)))
		Expect(c.Status.ReadyReplicas).To(HaveValue(BeEquivalentTo(0)))
		Expect(c.Status.Versions).To(Equal([]clusterv1.StatusVersion{{Version: "v1.36.3", Replicas: 3}}))
		Expect(c.Status.ObservedGeneration).To(Equal(c.Generation))
	})

	It("adds machines later only while etcd is whole", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = nil })
		workloadCluster := &fakeClusters{}
		reconciler := direct(testEnv.Config, workloadCluster)
		r.reconcileUntilIdle(ctx, reconciler)
		machine := r.expectMachines(ctx, 1)[0]
		workloadCluster.Cluster = facts.Cluster{Answers: true, KubeadmConfig: true, EtcdProblem: "not queried", Nodes: []facts.Node{{Name: machine.Name, ControlPlane: true, Ready: true, Components: scopetest.AllRun}}}
		r.reconcileUntilIdle(ctx, reconciler)
		Expect(r.condition(ctx, controlplanev1.InitializedCondition)()).To(HaveField("Status", metav1.ConditionTrue))

		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(3)) })
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 1)
		Expect(r.condition(ctx, controlplanev1.ScalingUpCondition)()).To(And(
			HaveField("Status", metav1.ConditionTrue), HaveField("Message", "Scaling up from 1 to 3 replicas. Waiting for etcd to answer: not queried")))

		workloadCluster.Etcd = &etcd.Health{Members: []etcd.Member{{ID: 1, Name: machine.Name, Answers: true, Leader: true}}}
		r.reconcileUntilIdle(ctx, reconciler)
		r.expectMachines(ctx, 3)
	})

	It("reports that the template is missing and continues when it exists", func(ctx SpecContext) {
		r := newRig(ctx, managed, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = "later"
		})
		Eventually(r.condition(ctx, controlplanev1.AvailableCondition)).Should(
			HaveField("Message", ContainSubstring("NovaVSphereMachineTemplate")))
		Eventually(r.condition(ctx, controlplanev1.ScalingUpCondition)).Should(HaveField("Message",
			"Scaling up from 0 to 3 replicas is blocked: NovaVSphereMachineTemplate later does not exist"))
		template := &vspherev1.NovaVSphereMachineTemplate{}
		Expect(testEnv.Client.Get(ctx, r.key("template"), template)).To(Succeed())
		template.ObjectMeta = metav1.ObjectMeta{Namespace: r.namespace, Name: "later"}
		Expect(testEnv.Client.Create(ctx, template)).To(Succeed())
		r.expectMachines(ctx, 3)
	})

	It("makes exactly three machines with its caches", func(ctx SpecContext) {
		r := newRig(ctx, managed, nil)
		for _, m := range r.expectMachines(ctx, 3) {
			r.adopt(ctx, &m)
		}
		Consistently(func() ([]clusterv1.Machine, error) { return r.machines(ctx) }, "2s").Should(HaveLen(3))
		r.expectMachines(ctx, 3)
	})

	It("survives a crash at each of its writes", func(ctx SpecContext) {
		// A run without a crash counts the writes.
		count := &crash{}
		r := newRig(ctx, "", nil)
		r.reconcileUntilIdle(ctx, direct(count.config(), &fakeClusters{}))
		r.expectMachines(ctx, 3)
		Expect(count.writes).To(BeNumerically(">", 15), "certificates, kubeconfig, three times three children and more")
		// A crash before a write has the same result as a crash after the
		// previous one.
		var all errgroup.Group
		// The runs are independent, and each waits for responses.
		all.SetLimit(4)
		for at := 1; at <= count.writes; at++ {
			all.Go(func() error {
				defer GinkgoRecover()
				r := newRig(ctx, "", nil)
				crashing := &crash{at: at}
				crashed(ctx, r, direct(crashing.config(), &fakeClusters{}))
				Expect(crashing.dead).To(BeTrue(), "crashing after write %d", at)
				r.reconcileUntilIdle(ctx, direct(testEnv.Config, &fakeClusters{}))
				r.expectMachines(ctx, 3)
				return nil
			})
		}
		Expect(all.Wait()).To(Succeed())
	})

	It("deletes the created objects when a machine cannot be created", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		refusing := direct(refuseMachines(), &fakeClusters{})
		Eventually(func() error {
			_, err := refusing.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)})
			return err
		}).Should(MatchError(ContainSubstring(errRefused.Error())))
		r.expectMachines(ctx, 0)
		messages, err := r.condition(ctx, controlplanev1.ScalingUpCondition)()
		Expect(err).NotTo(HaveOccurred())
		Expect(messages).To(HaveField("Message", And(
			HavePrefix("Scaling up from 0 to 3 replicas failed"), ContainSubstring(errRefused.Error()))))
		_, err = refusing.Reconcile(ctx, requestFor(r))
		Expect(err).To(HaveOccurred())
		Expect(r.condition(ctx, controlplanev1.ScalingUpCondition)()).To(Equal(messages), "the next try has another name to say")
		r.reconcileUntilIdle(ctx, direct(testEnv.Config, &fakeClusters{}))
		r.expectMachines(ctx, 3)
	})
})

// crashed reconciles until the reconciler has crashed.
func crashed(ctx context.Context, r *rig, reconciler *Reconciler) {
	GinkgoHelper()
	for range 20 {
		if _, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: r.key(controlPlaneName)}); err != nil {
			Expect(err).To(MatchError(ContainSubstring(errDead.Error())))
			return
		}
	}
	Fail("it does not crash")
}

var errDead = errors.New("this process is dead")

// crash is the connection of a process that crashes when its n-th write is
// done, before it receives the response. Afterwards all requests fail.
type crash struct {
	at int

	mu     sync.Mutex
	writes int
	dead   bool
}

func (c *crash) config() *rest.Config {
	config := rest.CopyConfig(testEnv.Config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) { return c.roundTrip(next, request) })
	})
	return config
}

func (c *crash) roundTrip(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, errDead
	}
	if request.Method == http.MethodGet {
		return next.RoundTrip(request)
	}
	c.writes++
	if c.writes != c.at {
		return next.RoundTrip(request)
	}
	c.dead = true
	response, err := next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(errDead, response.Body.Close())
}

func (c *crash) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// write counts a write elsewhere, whose response the process may not receive.
func (c *crash) write() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return errDead
	}
	c.writes++
	if c.writes != c.at {
		return nil
	}
	c.dead = true
	return errDead
}

var errRefused = errors.New("no machines today")

// refuseMachines is a connection that rejects all Machines.
func refuseMachines() *rest.Config { return refuse(http.MethodPatch, "/machines/") }

// refuse is a connection that rejects requests with a method whose path has one
// of the parts.
func refuse(method string, parts ...string) *rest.Config {
	config := rest.CopyConfig(testEnv.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			has := func(part string) bool { return strings.Contains(request.URL.Path, part) }
			if request.Method == method && slices.ContainsFunc(parts, has) {
				return nil, errRefused
			}
			return next.RoundTrip(request)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

var _ = Describe("Orphans", func() {
	It("keeps objects of a machine or of another owner", func(ctx SpecContext) {
		r := newRig(ctx, "", nil)
		reconciler := direct(testEnv.Config, &fakeClusters{})
		r.reconcileUntilIdle(ctx, reconciler)
		machines := r.expectMachines(ctx, 3)
		r.adopt(ctx, &machines[0])
		controlPlane, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		s := &scope.Scope{ControlPlane: controlPlane, ClusterName: clusterName}
		orphan := desiredConfig(s, "orphan")
		other := desiredConfig(s, "other")
		other.OwnerReferences = nil
		Expect(testEnv.Client.Create(ctx, orphan)).To(Succeed())
		Expect(testEnv.Client.Create(ctx, other)).To(Succeed())
		r.reconcileUntilIdle(ctx, reconciler)
		_, infra, configs, err := r.names(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(infra).To(ConsistOf(machines[0].Name, machines[1].Name, machines[2].Name))
		Expect(configs).To(ConsistOf("other", machines[0].Name, machines[1].Name, machines[2].Name))
	})
})
