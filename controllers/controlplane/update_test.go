package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/scope"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/controlplane/uptodate"
)

// update does for a machine the work of core Cluster API for changes in place: one
// tick begins, and the next one ends the change.
func (w *world) update(ctx context.Context, machine *clusterv1.Machine) {
	GinkgoHelper()
	if !isMarked(machine) || !scope.UpdateBegun(machine) {
		return
	}
	if altered := uptodate.Alterations(machine, nil, nil); len(altered) > 0 {
		w.wrongf("%s is changed in place with another version than it records: %s", machine.Name, altered)
	}
	if !conditions.IsTrue(machine, clusterv1.MachineUpdatingCondition) {
		conditions.Set(machine, metav1.Condition{
			Type: clusterv1.MachineUpdatingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineInPlaceUpdatingReason,
			Message: "a step failed", LastTransitionTime: metav1.NewTime(w.now),
		})
		w.write(testEnv.Client.Status().Update(ctx, machine))
		return
	}
	if w.stuck {
		return
	}
	infra, config := &vspherev1.NovaVSphereMachine{}, &bootstrapv1.NovaConfig{}
	for _, o := range []client.Object{infra, config} {
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(machine), o)).To(Succeed())
		if !isMarked(o) {
			w.wrongf("%T %s is not marked", o, o.GetName())
		}
	}
	if cpusOf(infra) < int64(infra.Spec.Hardware.CPUs) {
		return
	}
	w.hosts[machine.Name].authorities = w.authorities(ctx).ID
	for _, o := range []client.Object{machine, infra, config} {
		annotations := o.GetAnnotations()
		delete(annotations, clusterv1.UpdateInProgressAnnotation)
		delete(annotations, runtimev1.PendingHooksAnnotation)
		o.SetAnnotations(annotations)
		w.write(testEnv.Client.Update(ctx, o))
	}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineUpdatingCondition, Status: metav1.ConditionFalse, Reason: clusterv1.MachineNotUpdatingReason})
	w.write(testEnv.Client.Status().Update(ctx, machine))
}

// grow does the work of the infrastructure provider: the VM of a machine that is changed
// in place gets the CPUs of its spec.
func (w *world) grow(ctx context.Context, machine *clusterv1.Machine) {
	GinkgoHelper()
	infra := &vspherev1.NovaVSphereMachine{}
	if err := testEnv.Client.Get(ctx, client.ObjectKeyFromObject(machine), infra); apierrors.IsNotFound(err) {
		return
	}
	want := int64(infra.Spec.Hardware.CPUs)
	if has := cpusOf(infra); want != has && (has == 0 || isMarked(infra)) {
		infra.Status.Resizable = []infrav1.ResizableStatus{{Field: "hardware.cpus", Size: want, MaxSize: 64}}
		w.write(testEnv.Client.Status().Update(ctx, infra))
	}
}

// cpusOf returns the CPUs of a VM as its provider reports them.
func cpusOf(infra *vspherev1.NovaVSphereMachine) int64 {
	if len(infra.Status.Resizable) == 0 {
		return 0
	}
	return infra.Status.Resizable[0].Size
}

func isMarked(o client.Object) bool {
	_, marked := o.GetAnnotations()[clusterv1.UpdateInProgressAnnotation]
	return marked
}

// changedTo reports whether all machines have the settings of the control plane, and
// none is being changed. Only one is at a time.
func (w *world) changedTo(ctx context.Context, content string) func() bool {
	return func() bool {
		c, err := w.rig.controlPlane(ctx)
		Expect(err).NotTo(HaveOccurred())
		settings, err := uptodate.EncodeSettings(c)
		Expect(err).NotTo(HaveOccurred())
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		done, inProgress := true, 0
		for i := range machines {
			infra, config := &vspherev1.NovaVSphereMachine{}, &bootstrapv1.NovaConfig{}
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(&machines[i]), config)).To(Succeed())
			Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(&machines[i]), infra)).To(Succeed())
			if isMarked(&machines[i]) {
				inProgress++
			}
			done = done && cpusOf(infra) == int64(infra.Spec.Hardware.CPUs) &&
				infra.Annotations[clusterv1.TemplateClonedFromNameAnnotation] == c.Spec.MachineTemplate.Spec.InfrastructureRef.Name
			done = done && machines[i].Annotations[controlplanev1.SettingsAnnotation] == settings && machines[i].Spec.Version == c.Spec.Version && config.Spec.Files[0].Content == content
		}
		if inProgress > 1 {
			w.wrongf("%d machines are changed at once", inProgress)
		}
		return done && inProgress == 0 && len(machines) == 3
	}
}

// expectTemplates expects that the infrastructure machines name the templates that their
// Machines record.
func (w *world) expectTemplates(ctx context.Context) {
	GinkgoHelper()
	machines, err := w.rig.machines(ctx)
	Expect(err).NotTo(HaveOccurred())
	for i := range machines {
		infra := &vspherev1.NovaVSphereMachine{}
		Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(&machines[i]), infra)).To(Succeed())
		_, name, recorded := uptodate.TemplateOf(&machines[i])
		Expect(recorded).To(BeTrue())
		Expect(infra.Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, name))
	}
}

func inPlace(mode bootstrapv1.InPlaceMode) func(*controlplanev1.NovaControlPlane) {
	return func(c *controlplanev1.NovaControlPlane) {
		c.Spec.Rollout.InPlace = mode
		c.Spec.Config.Files = []bootstrapv1.File{{Path: "/etc/motd", Content: "0"}}
	}
}

func setContent(content string) func(*controlplanev1.NovaControlPlane) {
	return func(c *controlplanev1.NovaControlPlane) {
		c.Spec.Config.Files[0].Content = content
		c.Spec.Platform.APIServer.ExtraArgs = []bootstrapv1.Arg{{Name: "event-ttl", Value: ptr.To(content + "h")}}
	}
}

// setVersion also changes the version, whose programs the platform has.
func setVersion(version, content string) func(*controlplanev1.NovaControlPlane) {
	return func(c *controlplanev1.NovaControlPlane) {
		setContent(content)(c)
		download := bootstrapv1.ProgramSpec{URL: "https://universe.example.org/" + version, SHA256: strings.Repeat("ab", 32)}
		c.Spec.Version = version
		c.Spec.Platform.KubernetesPrograms = []bootstrapv1.KubernetesProgramsSpec{{Version: version, Kubeadm: download, Kubelet: download, Kubectl: download}}
	}
}

// setCPUs also changes the template, to one with more CPUs.
func setCPUs(ctx context.Context, cpus int32) func(*controlplanev1.NovaControlPlane) {
	return func(c *controlplanev1.NovaControlPlane) {
		name := fmt.Sprintf("cpus-%d", cpus)
		template := &vspherev1.NovaVSphereMachineTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name},
			Spec: vspherev1.NovaVSphereMachineTemplateSpec{Template: vspherev1.NovaVSphereMachineTemplateResource{Spec: vspherev1.NovaVSphereMachineSpec{
				Template: vspherev1.NovaVSphereTemplate{Name: "debian"}, Hardware: vspherev1.NovaVSphereHardware{CPUs: cpus},
				Network: vspherev1.NovaVSphereNetwork{Interfaces: []vspherev1.NovaVSphereInterface{{Network: "VM Network"}}},
			}}},
		}
		Expect(client.IgnoreAlreadyExists(testEnv.Client.Create(ctx, template))).To(Succeed())
		c.Spec.MachineTemplate.Spec.InfrastructureRef.Name = name
	}
}

// both makes two changes.
func both(first, second func(*controlplanev1.NovaControlPlane)) func(*controlplanev1.NovaControlPlane) {
	return func(c *controlplanev1.NovaControlPlane) {
		first(c)
		second(c)
	}
}

var _ = Describe("Changes of a control plane in place", func() {
	It("replace no machine, whichever write is the last one of a process", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, both(inPlace(bootstrapv1.InPlacePrefer), setCPUs(ctx, 2)))
		before := w.names()
		const writes = 14 // the begin for the first machine, and a part of the second
		for at := 1; at <= writes; at++ {
			content := strconv.Itoa(at)
			// The first of them is another minor version.
			w.rig.update(ctx, both(setVersion("v1.36."+content, content), setCPUs(ctx, int32(at+2))))
			crashing := &crash{at: at}
			dying := w.reconciler(crashing.config())
			w.driveWith(ctx, func() *Reconciler {
				if crashing.isDead() {
					return reconciler
				}
				return dying
			}, w.changedTo(ctx, content))
			Expect(crashing.isDead()).To(BeTrue(), "crashing after write %d", at)
			Expect(w.names()).To(Equal(before))
		}
	})

	It("stop with Only if a field needs other machines", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, inPlace(bootstrapv1.InPlaceOnly))
		before := w.names()
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) {
			setContent("1")(c)
			c.Spec.Config.PreKubeadmCommands = []string{"true"}
		})
		rollingOut := w.rig.condition(ctx, controlplanev1.RollingOutCondition)
		w.drive(ctx, reconciler, func() bool {
			c, err := rollingOut()
			return err == nil && c.Status == metav1.ConditionTrue
		})
		Expect(rollingOut()).To(HaveField("Message", ContainSubstring("need another machine: config.preKubeadmCommands. Revert them, or set spec.rollout.inPlace to Prefer")))
		Expect(w.names()).To(Equal(before))
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Config.PreKubeadmCommands = nil })
		w.drive(ctx, reconciler, w.changedTo(ctx, "1"))
		Expect(w.names()).To(Equal(before))
	})

	It("stop with Only if a VM cannot get the size", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, both(inPlace(bootstrapv1.InPlaceOnly), setCPUs(ctx, 2)))
		before := w.names()
		rollingOut := w.rig.condition(ctx, controlplanev1.RollingOutCondition)
		for cpus, why := range map[int32]string{1: "it cannot be decreased from 2 to 1", 65: "it cannot be more than 64 while the VM runs"} {
			w.rig.update(ctx, setCPUs(ctx, cpus))
			w.drive(ctx, reconciler, func() bool {
				c, err := rollingOut()
				return err == nil && strings.Contains(c.Message, "need another machine: machineTemplate.spec.infrastructureRef: hardware.cpus") && strings.Contains(c.Message, why)
			})
			Expect(w.names()).To(Equal(before))
		}
		w.rig.update(ctx, setCPUs(ctx, 4))
		w.drive(ctx, reconciler, w.changedTo(ctx, "0"))
		Expect(w.names()).To(Equal(before))
	})

	It("stop with Only if the platform has no programs of the version", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, inPlace(bootstrapv1.InPlaceOnly))
		before := w.names()
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Version = "v1.36.3" })
		rollingOut := w.rig.condition(ctx, controlplanev1.RollingOutCondition)
		w.drive(ctx, reconciler, func() bool {
			c, err := rollingOut()
			return err == nil && strings.Contains(c.Message, "need another machine: version (platform.kubernetesPrograms does not have it)")
		})
		Expect(w.names()).To(Equal(before))
		w.rig.update(ctx, setVersion("v1.36.3", "1"))
		w.drive(ctx, reconciler, w.changedTo(ctx, "1"))
		Expect(w.names()).To(Equal(before))
	})

	It("are canceled if their begin was interrupted and another field needs other machines", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, both(inPlace(bootstrapv1.InPlaceOnly), setCPUs(ctx, 2)))
		before := w.names()
		rollingOut := w.rig.condition(ctx, controlplanev1.RollingOutCondition)
		for at := 1; at <= 4; at++ {
			content := strconv.Itoa(at)
			w.rig.update(ctx, both(setContent(content), setCPUs(ctx, int32(at+2))))
			crashing := &crash{at: at}
			w.drive(ctx, w.reconciler(crashing.config()), crashing.isDead)
			w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Config.PreKubeadmCommands = []string{"true"} })
			crashing = &crash{at: at}
			dying := w.reconciler(crashing.config())
			w.driveWith(ctx, func() *Reconciler {
				if crashing.isDead() {
					return reconciler
				}
				return dying
			}, func() bool {
				c, err := rollingOut()
				machines, listed := w.rig.machines(ctx)
				Expect(listed).NotTo(HaveOccurred())
				return err == nil && strings.Contains(c.Message, "need another machine") &&
					!slices.ContainsFunc(machines, func(m clusterv1.Machine) bool { return isMarked(&m) })
			})
			w.expectTemplates(ctx)
			w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Config.PreKubeadmCommands = nil })
			w.drive(ctx, reconciler, w.changedTo(ctx, content))
			Expect(w.names()).To(Equal(before))
		}
	})

	It("renew certificates that expire soon", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, inPlace(bootstrapv1.InPlacePrefer))
		before := w.names()
		w.expire = w.now.Add(7 * 24 * time.Hour)
		w.rig.update(ctx, func(c *controlplanev1.NovaControlPlane) { c.Spec.Rollout.Before.CertificatesExpiryDays = 8 })
		renewed := func() int {
			machines, err := w.rig.machines(ctx)
			Expect(err).NotTo(HaveOccurred())
			count := 0
			for i := range machines {
				config := &bootstrapv1.NovaConfig{}
				Expect(testEnv.Client.Get(ctx, client.ObjectKeyFromObject(&machines[i]), config)).To(Succeed())
				if config.Annotations[bootstrapv1.RenewCertificatesAnnotation] != "" && !isMarked(&machines[i]) {
					count++
				}
			}
			return count
		}
		w.drive(ctx, reconciler, func() bool { return renewed() == 3 })
		rollingOut := w.rig.condition(ctx, controlplanev1.RollingOutCondition)
		w.drive(ctx, reconciler, func() bool {
			c, err := rollingOut()
			return err == nil && c.Status == metav1.ConditionFalse
		})
		Expect(w.names()).To(Equal(before), "the observed expiry is still the former one")
	})

	It("replace a machine whose change does not end, and touch no other one before", func(ctx SpecContext) {
		w, reconciler := runningWorld(ctx, 3, inPlace(bootstrapv1.InPlacePrefer))
		before := w.names()
		w.stuck = true
		w.rig.update(ctx, setContent("1"))
		w.drive(ctx, reconciler, func() bool { return len(w.members) > 3 })
		machines, err := w.rig.machines(ctx)
		Expect(err).NotTo(HaveOccurred())
		marked := 0
		for i := range machines {
			if isMarked(&machines[i]) {
				marked++
			}
		}
		Expect(marked).To(Equal(1))
		w.stuck = false
		w.drive(ctx, reconciler, w.changedTo(ctx, "1"))
		kept := 0
		for _, name := range w.names() {
			for _, was := range before {
				if name == was {
					kept++
				}
			}
		}
		Expect(kept).To(BeNumerically(">=", 2))
	})
})
