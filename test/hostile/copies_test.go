package hostile

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/fence"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/release"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// crimson is the cluster of a tenant that attacks with the permissions of its
// administrator, and that a second management cluster has a copy of.
var (
	crimson    = bed.Cluster{Name: "crimson", Namespace: "team-crimson", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.51"}
	crimsonAPI *bed.API
)

// copied are the managers in the second management cluster.
var copied = []string{"nova-vsphere", "nova-bootstrap", "nova-control-plane"}

// secondCluster is the second management cluster. It starts while other attacks
// run.
var secondCluster struct {
	started chan struct{}
	cluster *bed.Empty
	err     error
}

// startCopy starts a second management cluster with managers of its own, and
// waits for nothing.
func startCopy(ctx context.Context) {
	s := &secondCluster
	s.started = make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.started)
		s.cluster, s.err = copyOf(ctx)
	}()
	DeferCleanup(func() error {
		cancel()
		<-s.started
		if s.cluster == nil {
			return nil
		}
		return s.cluster.Stop()
	})
}

// awaitCopy returns the second management cluster once its managers are ready.
func awaitCopy(ctx context.Context) *bed.Empty {
	GinkgoHelper()
	s := &secondCluster
	if s.started == nil {
		startCopy(ctx)
	}
	Eventually(s.started).WithContext(ctx).WithTimeout(2 * refuseTimeout).Should(BeClosed())
	Expect(s.err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		list := &appsv1.DeploymentList{}
		g.Expect(s.cluster.Client.List(ctx, list)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1 + len(copied)))
		for i := range list.Items {
			g.Expect(list.Items[i].Status.AvailableReplicas).To(BeNumerically("==", 1), list.Items[i].Name)
		}
	}).Should(Succeed())
	return s.cluster
}

// copyOf returns a management cluster into which managers are installed. It is
// there after an error as well, to be stopped.
func copyOf(ctx context.Context) (*bed.Empty, error) {
	programs, err := tools.Paths(ctx, GinkgoWriter, bed.CoreManager)
	if err != nil {
		return nil, err
	}
	second, err := b.StartEmpty(ctx, "copy", "10.77.0.2", func(image string) string {
		name, _ := bed.ImageName(image)
		switch {
		case name == "cluster-api-controller":
			return programs[bed.CoreManager]
		case slices.Contains(copied, name):
			return b.Program(name)
		default:
			return ""
		}
	})
	if err != nil {
		return nil, err
	}
	if err := release.CertManager(ctx, second.Client); err != nil {
		return second, err
	}
	return second, second.Install(ctx, copied...)
}

// backup reads all that a backup has of a namespace.
func backup(ctx context.Context, namespace string) []*unstructured.Unstructured {
	GinkgoHelper()
	kinds := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	Expect(b.Client.List(ctx, definitions)).To(Succeed())
	for i := range definitions.Items {
		d := &definitions.Items[i].Spec
		if !strings.HasSuffix(d.Group, "cluster.x-k8s.io") || d.Scope != apiextensionsv1.NamespaceScoped {
			continue
		}
		stored := slices.IndexFunc(d.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
		kinds = append(kinds, schema.GroupVersionKind{Group: d.Group, Version: d.Versions[stored].Name, Kind: d.Names.Kind})
	}
	var all []*unstructured.Unstructured
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		Expect(b.Client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for i := range list.Items {
			if list.Items[i].GetName() != "kube-root-ca.crt" {
				all = append(all, &list.Items[i])
			}
		}
	}
	return all
}

// restore creates the objects of a backup, owners first, without their status
// and with the new UIDs of their owners. Their Cluster is paused meanwhile, as
// clusterctl does.
func restore(ctx context.Context, second *bed.Empty, all []*unstructured.Unstructured) {
	GinkgoHelper()
	By("restoring the copy")
	Expect(second.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: crimson.Namespace}})).To(Succeed())
	uids := map[types.UID]types.UID{}
	for len(all) > 0 {
		var later []*unstructured.Unstructured
		for _, o := range all {
			owners := o.GetOwnerReferences()
			if slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return uids[r.UID] == "" }) {
				later = append(later, o)
				continue
			}
			for i := range owners {
				owners[i].UID = uids[owners[i].UID]
			}
			before := o.GetUID()
			o.SetOwnerReferences(owners)
			o.SetUID("")
			o.SetResourceVersion("")
			o.SetManagedFields(nil)
			delete(o.Object, "status")
			if o.GetKind() == "Cluster" {
				Expect(unstructured.SetNestedField(o.Object, true, "spec", "paused")).To(Succeed())
			}
			// The webhooks serve a moment after their pod is ready.
			Eventually(func() error { return ignoreExists(second.Client.Create(ctx, o)) }).Should(Succeed())
			uids[before] = o.GetUID()
		}
		Expect(len(later)).To(BeNumerically("<", len(all)), "the owner of an object is not in the backup")
		all = later
	}
	annotate(ctx, second.Client, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
}

// annotate changes the Cluster crimson.
func annotate(ctx context.Context, in client.Client, change func(*clusterv1.Cluster)) {
	GinkgoHelper()
	Eventually(func() error {
		c := &clusterv1.Cluster{}
		if err := in.Get(ctx, crimson.Key(), c); err != nil {
			return err
		}
		before := c.DeepCopy()
		change(c)
		return in.Patch(ctx, c, client.MergeFrom(before))
	}).Should(Succeed())
}

// runningVMs returns the running VMs of crimson, by their instance UUIDs.
func runningVMs(ctx context.Context) ([]string, error) {
	vms, err := running(ctx, crimson)
	var all []string
	for name := range vms {
		all = append(all, name+" "+vms[name].InstanceUUID)
	}
	slices.Sort(all)
	return all, err
}

var _ = Describe("A second management cluster, restored from a copy", Ordered, ContinueOnFailure, func() {
	// watchTime is how long nothing may happen.
	const watchTime = 5 * time.Second
	var (
		second *bed.Empty
		before []string
	)

	BeforeAll(func(ctx context.Context) {
		startCrimson(ctx)
		second = awaitCopy(ctx)
		restore(ctx, second, backup(ctx, crimson.Namespace))
		infra := object(infraV, "NovaVSphereCluster", crimson.Namespace, crimson.Name, nil)
		Eventually(conditionsIn(second.Client, infra)).WithContext(ctx).Should(ContainSubstring(fence.ConditionType + "=False " + fence.OtherReason))
		var err error
		before, err = runningVMs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(before).To(HaveLen(2))
	})

	unchanged := func(ctx context.Context) {
		GinkgoHelper()
		Consistently(runningVMs).WithContext(ctx).WithTimeout(watchTime).Should(Equal(before))
	}

	It("denies no certificate request [F36]", func(ctx context.Context) {
		known := map[string]bool{}
		_, workers, err := b.Machines(ctx, crimson)
		Expect(err).NotTo(HaveOccurred())
		for i := range workers {
			known[workers[i].Name] = true
		}
		scale(ctx, crimson, 1)
		var m *clusterv1.Machine
		Eventually(func(g Gomega) {
			_, workers, err := b.Machines(ctx, crimson)
			g.Expect(err).NotTo(HaveOccurred())
			at := slices.IndexFunc(workers, func(m clusterv1.Machine) bool { return !known[m.Name] && m.Spec.Bootstrap.DataSecretName != nil })
			g.Expect(at).To(BeNumerically(">=", 0))
			m = &workers[at]
			before, err = runningVMs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(before).To(HaveLen(3))
		}).Should(Succeed())
		By("asking while only the copy could answer: it does not know the machine")
		Expect(b.Kill("nova-bootstrap", syscall.SIGSTOP)).To(Succeed())
		goOn := sync.OnceFunc(func() { Expect(b.Kill("nova-bootstrap", syscall.SIGCONT)).To(Succeed()) })
		DeferCleanup(goOn)
		csr := requestCertificate(ctx, joinerAt(crimsonAPI, m), csrOptions{signer: joinSigner, name: "system:node:" + m.Name, organizations: []string{nodes}})
		Consistently(decision).WithContext(ctx).WithArguments(crimsonAPI, csr).WithTimeout(2 * watchTime).Should(BeEmpty())
		goOn()
		Eventually(decision).WithContext(ctx).WithArguments(crimsonAPI, csr).Should(Equal("Approved"))
	})

	It("creates no VM [F36]", func(ctx context.Context) {
		md := &clusterv1.MachineDeployment{}
		Expect(second.Client.Get(ctx, client.ObjectKey{Namespace: crimson.Namespace, Name: crimson.Name + "-worker"}, md)).To(Succeed())
		patched := md.DeepCopy()
		*patched.Spec.Replicas++
		Expect(second.Client.Patch(ctx, patched, client.MergeFrom(md))).To(Succeed())
		Eventually(func(g Gomega) {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(bootstrapV)
			list.SetKind("NovaConfigList")
			g.Expect(second.Client.List(ctx, list, client.InNamespace(crimson.Namespace))).To(Succeed())
			var fenced int
			for i := range list.Items {
				all, err := conditionsIn(second.Client, &list.Items[i])(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				if strings.Contains(all, fence.OtherReason) {
					fenced++
				}
			}
			g.Expect(fenced).To(BeNumerically(">=", 1))
		}).Should(Succeed())
		unchanged(ctx)
	})

	It("deletes no VM with a Machine [F36]", func(ctx context.Context) {
		m := machine(ctx, crimson, false)
		infra := object(infraV, "NovaVSphereMachine", crimson.Namespace, m.Spec.InfrastructureRef.Name, nil)
		Expect(second.Client.Delete(ctx, infra)).To(Succeed())
		Eventually(conditionsIn(second.Client, infra)).WithContext(ctx).Should(ContainSubstring(fence.OtherReason))
		unchanged(ctx)
	})

	It("deletes no VM with a Cluster [F36]", func(ctx context.Context) {
		c := &clusterv1.Cluster{}
		Expect(second.Client.Get(ctx, crimson.Key(), c)).To(Succeed())
		Expect(second.Client.Delete(ctx, c)).To(Succeed())
		// Cluster API deletes the Machines of control planes last. A Machine that
		// has no VM yet has nothing to wait for and may be gone.
		Eventually(func(g Gomega) {
			list := &clusterv1.MachineList{}
			g.Expect(second.Client.List(ctx, list, client.InNamespace(crimson.Namespace))).To(Succeed())
			list.Items = slices.DeleteFunc(list.Items, func(m clusterv1.Machine) bool { return util.IsControlPlaneMachine(&m) })
			g.Expect(list.Items).NotTo(BeEmpty())
			for i := range list.Items {
				g.Expect(list.Items[i].DeletionTimestamp).NotTo(BeNil(), list.Items[i].Name)
			}
		}).Should(Succeed())
		unchanged(ctx)
	})

	It("acts for a Cluster only after the documented command to take over [F36]", func(ctx context.Context) {
		unchanged(ctx)
		system := &corev1.Namespace{}
		Expect(second.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system)).To(Succeed())
		takeOver := func(c *clusterv1.Cluster) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, fence.TakeOverAnnotation, string(system.UID))
		}
		// The original becomes read only, or it would replace the Machines.
		annotate(ctx, b.Client, takeOver)
		annotate(ctx, second.Client, takeOver)
		Eventually(func(ctx context.Context) ([]string, error) {
			now, err := runningVMs(ctx)
			return slices.DeleteFunc(slices.Clone(before), func(vm string) bool { return slices.Contains(now, vm) }), err
		}).WithContext(ctx).ShouldNot(BeEmpty(), "it deletes the VMs of the Machines that were deleted")
	})
})

// startCrimson creates the cluster and starts its API server, if no other
// attack has.
func startCrimson(ctx context.Context) {
	GinkgoHelper()
	if crimsonAPI != nil {
		return
	}
	Expect(b.Create(ctx, crimson)).To(Succeed())
	var err error
	crimsonAPI, err = b.StartAPI(ctx, crimson)
	Expect(err).NotTo(HaveOccurred())
	Eventually(running).WithContext(ctx).WithArguments(crimson).Should(HaveLen(2))
}
