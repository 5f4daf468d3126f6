package tenant

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// tiny is a cluster of one control plane.
func tiny(name, endpoint string, variables map[string]string) bed.Cluster {
	return bed.Cluster{Name: name, Namespace: name, ControlPlanes: 1, Endpoint: endpoint, Variables: variables}
}

// infraCluster reads the NovaVSphereCluster of a cluster.
func infraCluster(ctx context.Context, c bed.Cluster) (*infrav1.NovaVSphereCluster, error) {
	infra := &infrav1.NovaVSphereCluster{}
	return infra, b.Client.Get(ctx, c.Key(), infra)
}

// awaitSite waits until HypervisorAvailable says what it should.
func awaitSite(ctx context.Context, c bed.Cluster, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		infra, err := infraCluster(ctx, c)
		g.Expect(err).NotTo(HaveOccurred())
		for _, text := range want {
			g.Expect(message(infra, infrav1.HypervisorAvailableCondition)).To(ContainSubstring(text))
		}
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

// awaitMachine waits until VirtualMachineProvisioned of the only machine says
// what it should.
func awaitMachine(ctx context.Context, c bed.Cluster, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		list := &infrav1.NovaVSphereMachineList{}
		g.Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		for _, text := range want {
			g.Expect(message(&list.Items[0], infrav1.VirtualMachineProvisionedCondition)).To(ContainSubstring(text))
		}
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

// awaitEvent waits for a warning with that reason.
func awaitEvent(ctx context.Context, namespace, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		list := &eventsv1.EventList{}
		g.Expect(b.Client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(And(HaveField("Reason", reason), HaveField("Type", corev1.EventTypeWarning))))
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
}

// setPassword changes the Secret with vCenter's password.
func setPassword(ctx context.Context, namespace, password string) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "vsphere-credentials"}, secret)).To(Succeed())
	secret.Data["password"] = []byte(password)
	Expect(b.Client.Update(ctx, secret)).To(Succeed())
}

var _ = Describe("Bad input", func() {
	It("names a wrong password and recovers when it is mended", func(ctx context.Context) {
		c := tiny("password", "10.77.0.20", nil)
		Expect(b.Credentials(ctx, c.Namespace)).To(Succeed())
		setPassword(ctx, c.Namespace, "not-the-password")
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitSite(ctx, c, "False", infrav1.CredentialsInvalidReason, "incorrect user name or password")
		awaitEvent(ctx, c.Namespace, infrav1.CredentialsInvalidReason)
		center, err := b.VCenter(ctx)
		Expect(err).NotTo(HaveOccurred())
		setPassword(ctx, c.Namespace, center.Password)
		awaitSite(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("names a vCenter that cannot be reached and recovers when it is back", func(ctx context.Context) {
		c := tiny("unreachable", "10.77.0.21", nil)
		Expect(b.Control().SetDown(ctx, true)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(b.Control().SetDown(ctx, false)).To(Succeed()) })
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitSite(ctx, c, "False", infrav1.EndpointUnreachableReason)
		awaitEvent(ctx, c.Namespace, infrav1.EndpointUnreachableReason)
		Expect(b.Control().SetDown(ctx, false)).To(Succeed())
		awaitSite(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("names an unknown template and clones once it exists", func(ctx context.Context) {
		c := tiny("template", "10.77.0.22", map[string]string{"VSPHERE_TEMPLATE": "nova-node-next"})
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitMachine(ctx, c, "False", infrav1.SourceNotFoundReason, "nova-node-next")
		awaitEvent(ctx, c.Namespace, infrav1.SourceNotFoundReason)
		Expect(vms(ctx, c.Name+"-")).To(BeEmpty())
		renameTemplate(ctx, vcenter.DefaultTemplate, "nova-node-next")
		DeferCleanup(func(ctx context.Context) { renameTemplate(ctx, "nova-node-next", vcenter.DefaultTemplate) })
		awaitMachine(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("names a full datastore and clones once there is room", func(ctx context.Context) {
		c := tiny("full", "10.77.0.23", nil)
		Expect(b.Control().SetDatastoreFull(ctx, "LocalDS_0", true)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(b.Control().SetDatastoreFull(ctx, "LocalDS_0", false)).To(Succeed())
		})
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitMachine(ctx, c, "False", infrav1.InsufficientResourcesReason, "LocalDS_0")
		awaitEvent(ctx, c.Namespace, infrav1.InsufficientResourcesReason)
		Expect(vms(ctx, c.Name+"-")).To(BeEmpty(), "a clone that failed leaves no VM")
		Expect(b.Control().SetDatastoreFull(ctx, "LocalDS_0", false)).To(Succeed())
		awaitMachine(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("names a malformed user data template", func(ctx context.Context) {
		c := tiny("malformed", "10.77.0.24", nil)
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			if o.GetKind() == "NovaControlPlane" {
				files, _, err := unstructured.NestedSlice(o.Object, "spec", "config", "files")
				Expect(err).NotTo(HaveOccurred())
				files = append(files, map[string]any{"path": "/etc/motd", "content": "{{ .Machine.Nmae }", "contentFormat": string(bootstrapv1.ContentFormatTemplate)})
				Expect(unstructured.SetNestedSlice(o.Object, files, "spec", "config", "files")).To(Succeed())
			}
		}
		Expect(b.Credentials(ctx, c.Namespace)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			list := &bootstrapv1.NovaConfigList{}
			g.Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
			g.Expect(message(&list.Items[0], bootstrapv1.DataSecretAvailableCondition)).To(And(
				HavePrefix("False "+bootstrapv1.RenderingFailedReason), ContainSubstring("/etc/motd")))
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
		awaitEvent(ctx, c.Namespace, bootstrapv1.RenderingFailedReason)
		Expect(vms(ctx, c.Name+"-")).To(BeEmpty())
		deleteCluster(ctx, c)
	})

	It("refuses an invalid CIDR, and what was made beside the Cluster can be deleted", func(ctx context.Context) {
		c := tiny("cidr", "10.77.0.25", map[string]string{"SERVICE_CIDR": "10.300.0.0/16"})
		Expect(b.Create(ctx, c)).To(MatchError(ContainSubstring("10.300.0.0/16")))
		for _, o := range []client.Object{&infrav1.NovaVSphereCluster{}, &controlplanev1.NovaControlPlane{}} {
			Expect(b.Client.DeleteAllOf(ctx, o, client.InNamespace(c.Namespace))).To(Succeed())
		}
		deleteCluster(ctx, c)
	})

	It("refuses an even number of replicas", func(ctx context.Context) {
		c := tiny("even", "10.77.0.27", nil)
		c.ControlPlanes = 2
		Expect(b.Create(ctx, c)).To(MatchError(ContainSubstring("replicas must be odd")))
		awaitSite(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("never touches a VM of the same name that is not ours", func(ctx context.Context) {
		c := tiny("taken", "10.77.0.26", nil)
		foreign := cloneForeign(ctx, "taken-worker")
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitSite(ctx, c, "True")
		createMachine(ctx, c, "taken-worker")
		Eventually(func(g Gomega, ctx context.Context) {
			infra := &infrav1.NovaVSphereMachine{}
			g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: "taken-worker"}, infra)).To(Succeed())
			g.Expect(message(infra, infrav1.VirtualMachineProvisionedCondition)).To(And(
				HavePrefix("False "+infrav1.NameTakenReason), ContainSubstring("is not ours")))
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
		awaitEvent(ctx, c.Namespace, infrav1.NameTakenReason)
		Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: objectMeta(c)})).To(Succeed())
		Eventually(func(ctx context.Context) ([]string, error) { return vms(ctx, c.Name+"-") }).
			WithContext(ctx).WithTimeout(deleteTimeout).Should(ConsistOf("taken-worker"), "only the VM that is not ours stays")
		destroy(ctx, foreign)
		deleteCluster(ctx, c)
	})
})

// renameTemplate renames a template in vCenter.
func renameTemplate(ctx context.Context, from, to string) {
	GinkgoHelper()
	vim, err := b.Vim(ctx)
	Expect(err).NotTo(HaveOccurred())
	vm, err := bed.FindVM(ctx, vim, from)
	Expect(err).NotTo(HaveOccurred())
	task, err := vm.Rename(ctx, to)
	Expect(err).NotTo(HaveOccurred())
	Expect(task.Wait(ctx)).To(Succeed())
	Expect(vim.Logout(ctx)).To(Succeed())
}

// cloneForeign makes a VM that no provider knows, where those of the bed go.
func cloneForeign(ctx context.Context, name string) *object.VirtualMachine {
	GinkgoHelper()
	vim, err := b.Vim(ctx)
	Expect(err).NotTo(HaveOccurred())
	finder := find.NewFinder(vim.Client)
	template, err := bed.FindVM(ctx, vim, vcenter.DefaultTemplate)
	Expect(err).NotTo(HaveOccurred())
	folder, err := finder.Folder(ctx, vcenter.DefaultFolder)
	Expect(err).NotTo(HaveOccurred())
	pool, err := finder.ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
	Expect(err).NotTo(HaveOccurred())
	task, err := template.Clone(ctx, folder, name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: ptr.To(pool.Reference())},
	})
	Expect(err).NotTo(HaveOccurred())
	info, err := task.WaitForResult(ctx)
	Expect(err).NotTo(HaveOccurred())
	ref, ok := info.Result.(types.ManagedObjectReference)
	Expect(ok).To(BeTrue())
	return object.NewVirtualMachine(vim.Client, ref)
}

// destroy takes a VM away as its owner would.
func destroy(ctx context.Context, vm *object.VirtualMachine) {
	GinkgoHelper()
	task, err := vm.Destroy(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(task.Wait(ctx)).To(Succeed())
}

// createMachine makes a worker of a given name, past MachineDeployments.
func createMachine(ctx context.Context, c bed.Cluster, name string) {
	GinkgoHelper()
	template := &infrav1.NovaVSphereMachineTemplate{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, template)).To(Succeed())
	labels := map[string]string{clusterv1.ClusterNameLabel: c.Name}
	meta := objectMeta(c)
	meta.Name, meta.Labels = name, labels
	config := &bootstrapv1.NovaConfig{ObjectMeta: meta}
	infra := &infrav1.NovaVSphereMachine{ObjectMeta: meta, Spec: template.Spec.Template.Spec}
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: c.Name,
		Version:     bed.KubernetesVersion,
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: name,
		}},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereMachine", Name: name,
		},
	}}
	for _, o := range []client.Object{config, infra, machine} {
		Expect(b.Client.Create(ctx, o)).To(Succeed(), fmt.Sprintf("creating %T", o))
	}
}
