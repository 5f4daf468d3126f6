package controlplane

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/certificates"
	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/vault"
)

// authorities returns the state of the cluster's CAs.
func (w *world) authorities(ctx context.Context) *pki.Rotation {
	GinkgoHelper()
	state, err := pki.NewManaged(testEnv.Client).Rotation(ctx, w.rig.key(clusterName))
	Expect(err).NotTo(HaveOccurred())
	return state
}

// replaceWorker does the work of Cluster API: the worker has a new Machine in a new
// MachineSet.
func (w *world) replaceWorker(ctx context.Context, deployment *clusterv1.MachineDeployment) {
	GinkgoHelper()
	for _, o := range []client.Object{&clusterv1.Machine{}, &clusterv1.MachineSet{}} {
		Expect(testEnv.Client.DeleteAllOf(ctx, o, client.InNamespace(w.rig.namespace), client.MatchingLabels(deployment.Spec.Template.Labels))).To(Succeed())
	}
	meta := metav1.ObjectMeta{Namespace: w.rig.namespace, GenerateName: "workers-", Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName, "a": "b"}}
	set := &clusterv1.MachineSet{ObjectMeta: meta, Spec: clusterv1.MachineSetSpec{ClusterName: clusterName, Selector: deployment.Spec.Selector, Template: deployment.Spec.Template}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, clusterv1.GroupVersion.WithKind("MachineDeployment"))}
	Expect(testEnv.Client.Create(ctx, set)).To(Succeed())
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: deployment.Spec.Template.Spec}
	machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))}
	Expect(testEnv.Client.Create(ctx, machine)).To(Succeed())
	machine.Status.NodeRef.Name = "worker"
	Expect(testEnv.Client.Status().Update(ctx, machine)).To(Succeed())
}

// followingWorker gives the worker a NovaConfig that lets it be changed in place only, and
// an infrastructure machine.
func (w *world) followingWorker(ctx context.Context, deployment *clusterv1.MachineDeployment) *clusterv1.Machine {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: w.rig.namespace, Name: "worker"}
	config := &bootstrapv1.NovaConfig{ObjectMeta: meta}
	config.Spec.Rollout.InPlace = bootstrapv1.InPlaceOnly
	template := &vspherev1.NovaVSphereMachineTemplate{}
	Expect(testEnv.Client.Get(ctx, w.rig.key("template"), template)).To(Succeed())
	infra := &vspherev1.NovaVSphereMachine{ObjectMeta: meta, Spec: template.Spec.Template.Spec}
	for _, o := range []client.Object{config, infra} {
		Expect(testEnv.Client.Create(ctx, o)).To(Succeed())
	}
	deployment.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: meta.Name}
	deployment.Spec.Template.Spec.InfrastructureRef.Kind, deployment.Spec.Template.Spec.InfrastructureRef.Name = "NovaVSphereMachine", meta.Name
	w.replaceWorker(ctx, deployment)
	list := &clusterv1.MachineList{}
	Expect(testEnv.Client.List(ctx, list, client.InNamespace(w.rig.namespace), client.MatchingLabels(deployment.Spec.Template.Labels))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

// endUpdate does the work of Cluster API: the change of a worker in place ends.
func (w *world) endUpdate(ctx context.Context, worker *clusterv1.Machine) {
	GinkgoHelper()
	objects := []client.Object{&vspherev1.NovaVSphereMachine{}, &bootstrapv1.NovaConfig{}}
	for _, o := range objects {
		Expect(testEnv.Client.Get(ctx, w.rig.key("worker"), o)).To(Succeed())
		Expect(isMarked(o)).To(BeTrue(), "%T", o)
	}
	for _, o := range append(objects, worker) {
		o.SetAnnotations(nil)
		Expect(testEnv.Client.Update(ctx, o)).To(Succeed())
	}
}

// requested requests other CAs than the current ones.
func requested(c *controlplanev1.NovaControlPlane) {
	// CAs are younger than a time of the same second.
	c.Spec.Rollout.AuthoritiesAfter = ptr.To(metav1.NewTime(time.Now().Truncate(time.Second)))
}

// rotated reports whether the condition has a reason.
func (w *world) rotated(ctx context.Context, reason string) func() bool {
	condition := w.rig.condition(ctx, controlplanev1.AuthoritiesRotatedCondition)
	return func() bool {
		c, err := condition()
		return err == nil && c.Reason == reason
	}
}

// agedWorld is a running cluster whose CAs were made before this second, with a worker.
func agedWorld(ctx context.Context, change func(*controlplanev1.NovaControlPlane)) (*world, *Reconciler, *clusterv1.MachineDeployment) {
	GinkgoHelper()
	w, reconciler := runningWorld(ctx, 3, change)
	w.worker = ptr.To("")
	deployment := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.rig.namespace, Name: "workers", Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: clusterName, Selector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec: clusterv1.MachineSpec{
					ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NovaVSphereMachineTemplate", Name: "template"},
				},
			},
		},
	}
	Expect(testEnv.Client.Create(ctx, deployment)).To(Succeed())
	w.replaceWorker(ctx, deployment)
	made := pki.Made(w.authorities(ctx).CAs[certificates.Kubernetes].Signing)
	Eventually(time.Now).Should(BeTemporally(">", made.Add(2*time.Second)))
	return w, reconciler, deployment
}

var _ = Describe("Other CAs", func() {
	for _, mode := range []bootstrapv1.InPlaceMode{bootstrapv1.InPlaceNever, bootstrapv1.InPlaceOnly} {
		It("come in three changes of all machines, "+string(mode), func(ctx SpecContext) {
			w, reconciler, deployment := agedWorld(ctx, inPlace(mode))
			machines, before := w.names(), w.authorities(ctx).CAs[certificates.Kubernetes].Signing
			w.rig.update(ctx, requested)
			var after *x509.Certificate
			id, rolledOut := "", metav1.Time{}
			// Workers are replaced once all control plane machines have the state.
			workersFollow := func() {
				Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
				state := w.authorities(ctx)
				if state.ID != id {
					id, rolledOut = state.ID, deployment.Spec.Rollout.After
				}
				for name, host := range w.hosts {
					if host.authorities != id {
						Expect(deployment.Spec.Rollout.After).To(Equal(rolledOut), "while machine %s has other CAs", name)
					}
				}
			}
			for stage, reason := range []string{
				controlplanev1.AuthoritiesTrustingBothReason, controlplanev1.AuthoritiesIssuingNewReason, controlplanev1.AuthoritiesTrustingNewReason,
			} {
				condition := w.rig.condition(ctx, controlplanev1.AuthoritiesRotatedCondition)
				w.drive(ctx, reconciler, func() bool {
					workersFollow()
					c, err := condition()
					return err == nil && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.HasSuffix(c.Message, ": waiting for node worker")
				})
				state := w.authorities(ctx)
				g := state.CAs[certificates.Kubernetes]
				switch stage {
				case 0:
					Expect(g.Signing).To(Equal(before))
					after = g.Other
				case 1:
					Expect(g.Signing).To(Equal(after))
					Expect(g.Other).To(Equal(before))
				case 2:
					Expect(g).To(Equal(pki.Generations{Signing: after}))
				}
				if mode == bootstrapv1.InPlaceNever {
					Expect(slices.ContainsFunc(w.names(), func(name string) bool { return slices.Contains(machines, name) })).To(BeFalse(), "machines are replaced in stage %d", stage)
					machines = w.names()
				} else {
					Expect(w.names()).To(Equal(machines), "machines are changed in stage %d", stage)
				}
				By("letting the worker have the state of stage " + reason)
				Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
				Expect(deployment.Spec.Rollout.After.Time).To(BeTemporally(">=", state.Changed))
				w.replaceWorker(ctx, deployment)
				w.worker = &state.ID
			}
			w.drive(ctx, reconciler, w.rotated(ctx, controlplanev1.AuthoritiesRotatedReason))
			kubeconfig := &corev1.Secret{}
			Expect(testEnv.Client.Get(ctx, w.rig.key(clusterName+"-kubeconfig"), kubeconfig)).To(Succeed())
			ca := &corev1.Secret{}
			Expect(testEnv.Client.Get(ctx, w.rig.key(clusterName+"-ca"), ca)).To(Succeed())
			Expect(certs.DecodeCertPEM(ca.Data["tls.crt"])).To(Equal(after))
			Expect(w.wrongs).To(BeEmpty())
		})
	}

	It("come to workers in place", func(ctx SpecContext) {
		w, reconciler, deployment := agedWorld(ctx, inPlace(bootstrapv1.InPlaceOnly))
		worker := w.followingWorker(ctx, deployment)
		updating := func() bool {
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(worker), worker)).To(Succeed())
			return scope.UpdateBegun(worker)
		}
		w.rig.update(ctx, requested)
		for range 3 {
			w.drive(ctx, reconciler, updating)
			Expect(isMarked(worker)).To(BeTrue())
			state := w.authorities(ctx)
			for name, host := range w.hosts {
				Expect(host.authorities).To(Equal(state.ID), "machine %s of the control plane is first", name)
			}
			w.endUpdate(ctx, worker)
			w.worker = &state.ID
		}
		w.drive(ctx, reconciler, w.rotated(ctx, controlplanev1.AuthoritiesRotatedReason))
		Expect(updating()).To(BeFalse())
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		Expect(deployment.Spec.Rollout.After).To(BeZero(), "no machine is replaced")
		Expect(w.wrongs).To(BeEmpty())
	})

	It("are removed again when the time is", func(ctx SpecContext) {
		w, reconciler, _ := agedWorld(ctx, nil)
		before := w.authorities(ctx).CAs[certificates.Kubernetes].Signing
		w.rig.update(ctx, requested)
		w.drive(ctx, reconciler, func() bool {
			if state := w.authorities(ctx); state.CAs[certificates.Kubernetes].Signing.Equal(before) {
				w.worker = &state.ID
			}
			return w.rotated(ctx, controlplanev1.AuthoritiesIssuingNewReason)()
		})
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Rollout.AuthoritiesAfter = nil })
		w.drive(ctx, reconciler, func() bool {
			state := w.authorities(ctx)
			w.worker = &state.ID
			return w.rotated(ctx, controlplanev1.AuthoritiesRotatedReason)()
		})
		Expect(w.authorities(ctx).CAs[certificates.Kubernetes]).To(Equal(pki.Generations{Signing: before}))
		Expect(w.wrongs).To(BeEmpty())
	})

	It("wait for the StarVault that makes them, with a reason", func(ctx SpecContext) {
		w, reconciler, _ := agedWorld(ctx, nil)
		sealed := &sealedRotator{Rotator: reconciler.Rotator, problem: &vault.Error{Problem: vault.Sealed, Path: "nova/ns.c/etcd", Detail: "the server is sealed"}}
		reconciler.Rotator, w.mayFail = sealed, sealed.problem.Detail
		w.rig.update(ctx, requested)
		w.drive(ctx, reconciler, w.rotated(ctx, bootstrapv1.VaultSealedReason))
		Expect(w.rig.condition(ctx, controlplanev1.AuthoritiesRotatedCondition)()).To(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("nova/ns.c/etcd: the server is sealed")),
		))
		sealed.problem = nil
		w.drive(ctx, reconciler, w.rotated(ctx, controlplanev1.AuthoritiesTrustingBothReason))
	})

	It("are refused if a user has made the current ones", func(ctx SpecContext) {
		w, reconciler, _ := agedWorld(ctx, nil)
		for _, name := range []string{"-ca", "-etcd", "-proxy"} {
			s := &corev1.Secret{}
			Expect(testEnv.Client.Get(ctx, w.rig.key(clusterName+name), s)).To(Succeed())
			Expect(testEnv.Client.Delete(ctx, s)).To(Succeed())
			Expect(testEnv.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}, Data: s.Data})).To(Succeed())
		}
		w.rig.update(ctx, requested)
		w.drive(ctx, reconciler, w.rotated(ctx, controlplanev1.AuthoritiesRefusedReason))
		Expect(w.rig.condition(ctx, controlplanev1.AuthoritiesRotatedCondition)()).To(HaveField("Message", ContainSubstring("was created by a user")))
	})
})

// sealedRotator has the CAs in a StarVault that has a problem.
type sealedRotator struct {
	pki.Rotator

	problem *vault.Error
}

func (r *sealedRotator) Rotate(ctx context.Context, cluster client.ObjectKey, step pki.RotationStep, validity time.Duration) error {
	if r.problem != nil {
		return fmt.Errorf("rotating %s: %w", cluster.Name, r.problem)
	}
	return r.Rotator.Rotate(ctx, cluster, step, validity)
}
