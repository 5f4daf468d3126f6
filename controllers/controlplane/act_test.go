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
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/initlock"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/kubeadm"
	"github.com/nova-platform/cluster-api-provider-nova/internal/workload/timelimits"
)

// runningWorld creates a running control plane of n machines.
func runningWorld(ctx context.Context, n int32, change func(*controlplanev1.NovaControlPlane)) (*world, *Reconciler) {
	GinkgoHelper()
	r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
		c.Spec.Replicas = ptr.To(n)
		c.Spec.Version = "v1.35.4"
		if change != nil {
			change(c)
		}
	})
	w := newWorld(r)
	reconciler := w.reconciler(testEnv.Config)
	w.drive(ctx, reconciler, w.whole(ctx, int(n)))
	Expect(w.inits).To(Equal(1))
	return w, reconciler
}

// giveUp marks a machine for remediation as a MachineHealthCheck does.
func giveUp(ctx context.Context, r *rig, name, why string) {
	GinkgoHelper()
	Eventually(func() error {
		machine := &clusterv1.Machine{}
		if err := testEnv.Client.Get(ctx, r.key(name), machine); err != nil {
			return err
		}
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: why,
		})
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		})
		return testEnv.Client.Status().Update(ctx, machine)
	}).Should(Succeed())
}

func (w *world) scaleTo(ctx context.Context, n int32) {
	GinkgoHelper()
	w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(n) })
}

func (w *world) names() []string {
	var names []string
	for _, m := range w.members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

var _ = Describe("Scaling", func() {
	It("scales from one to three, to five, to three and to one", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 1, nil)
		for _, n := range []int32{3, 5, 3, 1} {
			w.scaleTo(ctx, n)
			w.drive(ctx, reconciler, w.whole(ctx, int(n)))
		}
		Expect(w.removed).To(HaveLen(4), "each by its ID")
		Expect(w.inits).To(Equal(1))
	})

	It("deletes first the machine that a user marked", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		named := &machines[1]
		named.Annotations[clusterv1.DeleteMachineAnnotation] = ""
		other := &machines[2]
		other.Annotations[clusterv1.DeleteMachineAnnotation] = ""
		Expect(testEnv.Client.Update(ctx, named)).To(Succeed())
		Expect(testEnv.Client.Update(ctx, other)).To(Succeed())
		w.scaleTo(ctx, 1)
		w.drive(ctx, reconciler, w.whole(ctx, 1))
		Expect(w.names()).To(Equal([]string{machines[0].Name}))
	})

	It("keeps the quorum when a user deletes two of three machines at once", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		for i := range machines[:2] {
			Expect(testEnv.Client.Delete(ctx, &machines[i])).To(Succeed())
		}
		w.drive(ctx, reconciler, w.whole(ctx, 3))
		Expect(w.names()).To(And(ContainElement(machines[2].Name), Not(ContainElement(machines[0].Name)), Not(ContainElement(machines[1].Name))))
		Expect(w.inits).To(Equal(1))
	})

	It("does not wait for a leader indefinitely", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		w.stubborn = true
		leader := ""
		for _, m := range w.members {
			if m.Leader {
				leader = m.Name
			}
		}
		Expect(testEnv.Client.Delete(ctx, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.rig.namespace, Name: leader}})).To(Succeed())
		w.drive(ctx, reconciler, func() bool { return w.whole(ctx, 3)() && !slices.Contains(w.names(), leader) })
		Expect(w.leads).To(HaveLen(maxTransfers))
	})

	It("leaves neither member nor node when a user removes finalizers and hooks from a machine", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		victim := &machines[0]
		Expect(testEnv.Client.Delete(ctx, victim)).To(Succeed())
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(victim), victim)).To(Succeed())
		victim.Finalizers, victim.Annotations = nil, nil
		Expect(testEnv.Client.Update(ctx, victim)).To(Succeed())
		delete(w.hosts, victim.Name)
		w.torn[victim.Name] = true
		w.drive(ctx, reconciler, func() bool { return w.whole(ctx, 3)() && len(w.torn) == 0 })
	})

	It("reports on a machine why its deletion waits, and releases it without a host", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		// Two hosts are lost, and one of their machines is deleted.
		w.down[machines[0].Name], w.down[machines[1].Name] = true, true
		Expect(testEnv.Client.Delete(ctx, &machines[0])).To(Succeed())
		w.drive(ctx, reconciler, func() bool {
			m := &clusterv1.Machine{}
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(&machines[0]), m)).To(Succeed())
			c := conditions.Get(m, controlplanev1.MachineSafeToDeleteCondition)
			return c != nil && c.Status == metav1.ConditionFalse && c.Message == "Waiting for etcd to answer: The API server does not answer"
		})
		w.down[machines[1].Name] = false
		w.drive(ctx, reconciler, w.whole(ctx, 3))
		Expect(w.names()).NotTo(ContainElement(machines[0].Name))
	})
})

var _ = Describe("A rollout", func() {
	It("moves to the next version one machine after another", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		old := w.names()
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36.3" })
		most := 0
		w.drive(ctx, reconciler, func() bool {
			machines, err := w.rig.machines(ctx)
			Expect(err).NotTo(HaveOccurred())
			most = max(most, len(machines))
			return w.whole(ctx, 3)()
		})
		Expect(most).To(Equal(4))
		Expect(w.versions).To(Equal([]string{"v1.36.3"}), "before the first machine joins")
		Expect(w.names()).NotTo(ContainElements(old[0]))
		w.drive(ctx, reconciler, func() bool {
			c, err := w.rig.condition(ctx, controlplanev1.RollingOutCondition)()
			return err == nil && c.Status == metav1.ConditionFalse
		})
	})

	It("takes the old machine away first with maxSurge 0", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(int32(0))
		})
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36.3" })
		w.drive(ctx, reconciler, func() bool {
			machines, err := w.rig.machines(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(len(machines)).To(BeNumerically("<=", 3))
			return w.whole(ctx, 3)()
		})
	})

	It("waits for people with OnDelete", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Rollout.Strategy.Type = controlplanev1.OnDeleteStrategy
		})
		old := w.names()
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36.3" })
		w.drive(ctx, reconciler, func() bool {
			c, err := w.rig.condition(ctx, controlplanev1.RollingOutCondition)()
			return err == nil && c.Status == metav1.ConditionTrue
		})
		Expect(w.names()).To(Equal(old))
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.rig.namespace, Name: old[0]}}
		Expect(testEnv.Client.Delete(ctx, machine)).To(Succeed())
		w.drive(ctx, reconciler, func() bool { return len(w.names()) == 3 && !slices.Contains(w.names(), old[0]) })
		Expect(w.names()).To(ContainElements(old[1], old[2]))
	})

	It("begins when its time comes", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 1, nil)
		old := w.names()
		// The API server sets creation times by its own clock.
		after := time.Now().Add(time.Second).Truncate(time.Second)
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Rollout.After = ptr.To(metav1.NewTime(after)) })
		Eventually(time.Now).Should(BeTemporally(">", after.Add(time.Second)))
		w.drive(ctx, reconciler, func() bool { return !slices.Contains(w.names(), old[0]) && w.whole(ctx, 1)() })
	})

	It("replaces machines before their certificates expire", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 1, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Rollout.Before.CertificatesExpiryDays = 7
		})
		old := w.names()
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		machines[0].Status.CertificatesExpiryDate = metav1.NewTime(w.now.Add(6 * 24 * time.Hour))
		Expect(testEnv.Client.Status().Update(ctx, &machines[0])).To(Succeed())
		w.drive(ctx, reconciler, func() bool { return !slices.Contains(w.names(), old[0]) && w.whole(ctx, 1)() })
	})
})

var _ = Describe("A rollout without an end", func() {
	It("does not begin, and a condition reports it", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 1, func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Rollout.Before.CertificatesExpiryDays = 100
			c.Spec.Config.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "ClusterConfiguration", Patch: "certificateValidityPeriod: 2400h"}}
		})
		old := w.names()
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		machines[0].Status.CertificatesExpiryDate = metav1.NewTime(w.now.Add(99 * 24 * time.Hour))
		Expect(testEnv.Client.Status().Update(ctx, &machines[0])).To(Succeed())
		until := w.now.Add(20 * worldTick)
		w.drive(ctx, reconciler, func() bool { return w.now.After(until) })
		Expect(w.names()).To(Equal(old))
		Expect(w.rig.condition(ctx, controlplanev1.RollingOutCondition)()).To(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("certificates last 100 days"))))
	})
})

var _ = Describe("Remediation", func() {
	It("replaces a lost machine", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		lost := w.names()[0]
		w.down[lost], w.sick[lost] = true, true
		w.drive(ctx, reconciler, func() bool { return w.whole(ctx, 3)() && !slices.Contains(w.names(), lost) })
		c, err := w.rig.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Status.LastRemediation.Machine).To(Equal(lost))
		Expect(c.Status.LastRemediation.RetryCount).To(HaveValue(BeEquivalentTo(0)))
	})

	It("changes nothing without a quorum and reports how to recover", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		lost := w.names()[:2]
		for _, name := range lost {
			w.down[name], w.sick[name] = true, true
		}
		w.drive(ctx, reconciler, func() bool {
			c, err := w.rig.condition(ctx, controlplanev1.RemediatingCondition)()
			return err == nil && c.Status == metav1.ConditionTrue && c.Reason == controlplanev1.RemediationDeferredReason
		})
		until := w.now.Add(20 * worldTick)
		w.drive(ctx, reconciler, func() bool { return w.now.After(until) })
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(machines).To(HaveLen(3))
		Expect(machines).To(HaveEach(HaveField("DeletionTimestamp", BeNil())))
		Expect(machines).To(ContainElement(WithTransform(func(m clusterv1.Machine) string {
			return conditions.GetMessage(&m, clusterv1.MachineOwnerRemediatedCondition)
		}, ContainSubstring("Waiting for etcd to answer"))))
		// One host comes back, and the cluster recovers by itself.
		w.down[lost[0]], w.sick[lost[0]] = false, false
		w.drive(ctx, reconciler, func() bool { return w.whole(ctx, 3)() && !slices.Contains(w.names(), lost[1]) })
	})

	It("replaces an init that fails and stops at the limit", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Version = "v1.35.4"
			c.Spec.Remediation = controlplanev1.NovaControlPlaneRemediationSpec{MaxRetry: ptr.To(int32(1)), MinHealthyPeriodSeconds: ptr.To(int32(7200))}
		})
		w := newWorld(r)
		w.failInit = 2
		reconciler := w.reconciler(testEnv.Config)
		w.drive(ctx, reconciler, func() bool {
			for name, host := range w.hosts {
				w.sick[name] = w.sick[name] || host.failed
			}
			return w.whole(ctx, 3)()
		})
		Expect(w.inits).To(Equal(1))
		c, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Status.LastRemediation.RetryCount).To(HaveValue(BeEquivalentTo(1)))
	})

	for what, flag := range map[string]func(w *world) *bool{
		"before the first probe":             func(w *world) *bool { return &w.initUnknown },
		"while only its caches are outdated": func(w *world) *bool { return &w.unseen },
	} {
		for _, n := range []int{1, 3} {
			It(fmt.Sprintf("keeps machines that were initialized while the manager was down, %s: %d machines", what, n), func(ctx SpecContext) {
				r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Replicas = ptr.To(int32(n)) })
				w := newWorld(r)
				w.drive(ctx, w.reconciler(testEnv.Config), func() bool { return len(w.hosts) == n })
				Expect(initlock.Initialized(ctx, testEnv.Client, r.key(clusterName))).To(BeFalse())

				By("initializing while the manager is down, until a MachineHealthCheck fails")
				for range 12 {
					w.tick(ctx)
				}
				Expect(w.members).To(HaveLen(n))
				names := w.names()
				for _, name := range names {
					giveUp(ctx, r, name, clusterv1.MachineHealthCheckNodeStartupTimeoutReason)
				}
				w.now = w.now.Add(2 * bootstrapv1.JoinBound)

				By("coming back")
				reconciler := w.reconciler(testEnv.Config)
				*flag(w) = true
				result, err := reconciler.Reconcile(ctx, requestFor(r))
				Expect(err).NotTo(HaveOccurred())
				if w.initUnknown {
					Expect(result.RequeueAfter).To(Equal(timelimits.CallTimeout), "no event may follow")
				}
				r.reconcileTimes(ctx, reconciler, 3)
				*flag(w) = false
				until := w.now.Add(20 * worldTick)
				w.drive(ctx, reconciler, func() bool { return w.now.After(until) && w.whole(ctx, n)() })
				Expect(w.names()).To(Equal(names), "no machine was replaced")
				Expect(w.inits).To(Equal(1))
				Expect(initlock.Initialized(ctx, testEnv.Client, r.key(clusterName))).To(BeTrue())
			})
		}
	}

	It("continues by itself when the cause of a failed init is fixed", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.35.4" })
		w := newWorld(r)
		w.failInit = 1
		reconciler := w.reconciler(testEnv.Config)
		w.drive(ctx, reconciler, func() bool { return w.failInit == 0 })
		r.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36.3" })
		w.drive(ctx, reconciler, w.whole(ctx, 3))
		Expect(w.inits).To(Equal(1))
	})

	It("reports that it has stopped at its limit", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) {
			c.Spec.Replicas = ptr.To(int32(1))
			c.Spec.Version = "v1.35.4"
			c.Spec.Remediation = controlplanev1.NovaControlPlaneRemediationSpec{MaxRetry: ptr.To(int32(0))}
		})
		w := newWorld(r)
		w.failInit = 9
		w.drive(ctx, w.reconciler(testEnv.Config), func() bool {
			for name, host := range w.hosts {
				w.sick[name] = w.sick[name] || host.failed
			}
			c, err := r.condition(ctx, controlplanev1.RemediatingCondition)()
			return err == nil && c.Reason == controlplanev1.RemediationLimitReachedReason
		})
		Expect(w.inits).To(BeZero())
	})
})

var _ = Describe("A configuration that cannot be stored", func() {
	// It cannot be rendered, or the workload cluster rejects it.
	broken := map[string]func(ctx context.Context, w *world, is bool){
		"a patch that is no YAML": func(ctx context.Context, w *world, is bool) {
			w.mayFail = "spec.kubeadm.configPatches[ClusterConfiguration]"
			w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) {
				c.Spec.Config.Kubeadm.ConfigPatches = []bootstrapv1.ConfigPatch{{Kind: "ClusterConfiguration", Patch: "apiServer:\n  certSANs: [one\n"}}
				if !is {
					c.Spec.Config.Kubeadm.ConfigPatches[0].Patch = "apiServer:\n  certSANs: [one]\n"
				}
			})
		},
		"a workload cluster that rejects it": func(ctx context.Context, w *world, is bool) {
			w.mayFail, w.refusesVersion = "admission webhook", nil
			if is {
				w.refusesVersion = errors.New("admission webhook rejects it")
			}
			w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) {
				c.Spec.Platform.APIServer.CertSANs = []string{"one.example.com"}
			})
		},
	}
	for what, setBroken := range broken {
		It("blocks joins and nothing else: "+what, func(ctx SpecContext) {
			w, reconciler := runningWorld(ctx, 3, nil)
			setBroken(ctx, w, true)
			explains := func(condition string) func() bool {
				return func() bool {
					c, err := w.rig.condition(ctx, condition)()
					return err == nil && c.Status == metav1.ConditionTrue &&
						strings.Contains(c.Message, "No machine can join: ") && strings.Contains(c.Message, w.mayFail)
				}
			}
			w.drive(ctx, reconciler, explains(controlplanev1.RollingOutCondition))
			w.rig.expectMachines(ctx, 3)

			By("replacing a machine that is lost")
			lost := w.names()[0]
			w.down[lost], w.sick[lost] = true, true
			w.drive(ctx, reconciler, func() bool {
				machines, err := w.rig.machines(ctx)
				return err == nil && len(machines) == 2 && len(w.members) == 2 && !slices.Contains(w.names(), lost)
			})
			w.drive(ctx, reconciler, explains(controlplanev1.ScalingUpCondition))
			w.rig.expectMachines(ctx, 2)

			By("fixing it")
			setBroken(ctx, w, false)
			old := w.names()
			w.drive(ctx, reconciler, func() bool {
				return w.whole(ctx, 3)() && !slices.Contains(w.names(), old[0]) && !slices.Contains(w.names(), old[1])
			})
		})
	}
})

var _ = Describe("A missing stored configuration of kubeadm", func() {
	It("blocks the creation of machines that could not join, and reports it", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 1, nil)
		w.drive(ctx, reconciler, func() bool {
			done, err := initlock.Initialized(ctx, testEnv.Client, w.rig.key(clusterName))
			return err == nil && done
		})
		w.forgot = true
		w.scaleTo(ctx, 3)
		w.drive(ctx, reconciler, func() bool {
			c, err := w.rig.condition(ctx, controlplanev1.ScalingUpCondition)()
			return err == nil && c.Status == metav1.ConditionTrue &&
				strings.Contains(c.Message, "No machine can join: ConfigMap kube-system/kubeadm-config with the settings of new machines does not exist")
		})
		w.rig.expectMachines(ctx, 1)
		By("making it again with nothing but the version")
		w.forgot, w.stored = false, kubeadm.Document{Content: "kubernetesVersion: v1.35.4\n"}
		w.drive(ctx, reconciler, w.whole(ctx, 3))
		Expect(w.stored.Content).To(And(ContainSubstring("kind: ClusterConfiguration"), ContainSubstring("controlPlaneEndpoint: 127.0.0.1:1")))
	})
})

var _ = Describe("A control plane that is deleted", func() {
	It("does not depend on a workload cluster without quorum, even for a machine at the hook", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		w.down[machines[0].Name], w.down[machines[1].Name] = true, true
		Expect(testEnv.Client.Delete(ctx, &machines[0])).To(Succeed())
		until := w.now.Add(5 * worldTick)
		w.drive(ctx, reconciler, func() bool { return w.now.After(until) })
		w.rig.expectMachines(ctx, 3)
		c, err := w.rig.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(testEnv.Client.Delete(ctx, c)).To(Succeed())
		w.drive(ctx, reconciler, func() bool {
			_, err := w.rig.controlPlane(ctx)
			return apierrors.IsNotFound(err)
		})
		w.rig.expectMachines(ctx, 0)
		Expect(w.removed).To(BeEmpty())
	})
})

var _ = Describe("A recreated control plane", func() {
	It("is initialized again when only the NovaControlPlane was deleted", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, nil)
		former, err := w.rig.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(testEnv.Client.Delete(ctx, former)).To(Succeed())
		w.drive(ctx, reconciler, func() bool {
			_, err := w.rig.controlPlane(ctx)
			return apierrors.IsNotFound(err)
		})
		w.members = nil
		again := newControlPlane(w.rig.namespace)
		again.Labels, again.OwnerReferences, again.Spec = former.Labels, former.OwnerReferences, former.Spec
		Expect(testEnv.Client.Create(ctx, again)).To(Succeed())
		w.drive(ctx, reconciler, func() bool {
			c, err := w.rig.condition(ctx, controlplanev1.AvailableCondition)()
			return err == nil && c.Message == "Waiting for Secret c-ca of a former cluster to be deleted with it"
		})
		// This replaces the garbage collector, which does not run here.
		for _, name := range []string{"c-ca", "c-etcd", "c-proxy", "c-sa", "c-kubeconfig"} {
			Expect(client.IgnoreNotFound(deleteSecret(ctx, w.rig, name))).To(Succeed())
		}
		w.drive(ctx, reconciler, w.whole(ctx, 3))
		Expect(w.inits).To(Equal(2))
	})
})

var _ = Describe("A process that dies", func() {
	It("is followed by one that continues, after any number of writes", func(ctx SpecContext) {
		r := newRig(ctx, "", func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.35.4" })
		w := newWorld(r)
		var process *crash
		var reconciler *Reconciler
		deaths := 0
		// The first reconciler crashes after 1 write, the next after 2, and so
		// on. A new process applies all children of all machines once more
		// before it does anything new.
		const most = 23
		alive := func() *Reconciler {
			if process == nil || process.isDead() {
				process = &crash{at: 1 + deaths%most}
				reconciler = w.reconciler(process.config())
				deaths++
			}
			return reconciler
		}
		w.onAct = func() error { return process.write() }
		w.driveWith(ctx, alive, w.whole(ctx, 3))

		for _, version := range []string{"v1.36.3", "v1.37.0"} {
			w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = version })
			w.driveWith(ctx, alive, w.whole(ctx, 3))
		}

		lost := w.names()[0]
		w.down[lost], w.sick[lost] = true, true
		w.driveWith(ctx, alive, func() bool { return w.whole(ctx, 3)() && !slices.Contains(w.names(), lost) })
		w.driveWith(ctx, alive, func() bool {
			c, err := w.rig.controlPlane(ctx)
			return err == nil && c.Status.LastRemediation.Machine == lost && *c.Status.LastRemediation.RetryCount == 0
		})

		for _, n := range []int32{1, 3} {
			w.scaleTo(ctx, n)
			w.driveWith(ctx, alive, w.whole(ctx, int(n)))
		}
		Expect(w.inits).To(Equal(1))
		Expect(deaths).To(BeNumerically(">", most), "each number of writes came")

		c, err := r.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(testEnv.Client.Delete(ctx, c)).To(Succeed())
		w.driveWith(ctx, alive, func() bool {
			_, err := r.controlPlane(ctx)
			return apierrors.IsNotFound(err)
		})
		r.expectMachines(ctx, 0)
	})
})

func deleteSecret(ctx context.Context, r *rig, name string) error {
	return testEnv.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}})
}
