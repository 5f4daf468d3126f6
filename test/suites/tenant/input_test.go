package tenant

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// awaitSite waits until HypervisorAvailable has the expected message.
func awaitSite(ctx context.Context, c bed.Cluster, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		clusters, err := b.ListInfra(ctx, on(c), "Cluster", c.Namespace)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(clusters).To(HaveLen(1))
		for _, text := range want {
			g.Expect(message(clusters[0], infrav1.HypervisorAvailableCondition)).To(ContainSubstring(text))
		}
	}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
}

// awaitMachine waits until VirtualMachineProvisioned of the only machine has the expected message.
func awaitMachine(ctx context.Context, c bed.Cluster, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		machines, err := b.ListInfra(ctx, on(c), "Machine", c.Namespace)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(machines).To(HaveLen(1))
		for _, text := range want {
			g.Expect(message(machines[0], infrav1.VirtualMachineProvisionedCondition)).To(ContainSubstring(text))
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

// setPassword changes the Secret with the hypervisor's password.
func setPassword(ctx context.Context, c bed.Cluster, password string) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: on(c).Facts().CredentialsSecret}, secret)).To(Succeed())
	secret.Data["password"] = []byte(password)
	Expect(b.Client.Update(ctx, secret)).To(Succeed())
}

// nextTemplate is a template that is not there.
const nextTemplate = "nova-node-next"

var _ = describeOn(firstOnly(), "Bad input", func(hypervisor string) {
	It("reports a wrong password and recovers when it is corrected", func(ctx context.Context) {
		c := cluster(hypervisor, "password", 20)
		Expect(b.Credentials(ctx, c)).To(Succeed())
		setPassword(ctx, c, "not-the-password")
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitSite(ctx, c, "False", infrav1.CredentialsInvalidReason, on(c).Facts().LoginRejected)
		awaitEvent(ctx, c.Namespace, infrav1.CredentialsInvalidReason)
		credentials, err := on(c).Credentials()
		Expect(err).NotTo(HaveOccurred())
		setPassword(ctx, c, credentials["password"])
		awaitSite(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("names a hypervisor that cannot be reached and recovers when it is back", func(ctx context.Context) {
		c := cluster(hypervisor, "unreachable", 21)
		Expect(on(c).SetDown(ctx, true)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(on(c).SetDown(ctx, false)).To(Succeed()) })
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitSite(ctx, c, "False", infrav1.EndpointUnreachableReason)
		awaitEvent(ctx, c.Namespace, infrav1.EndpointUnreachableReason)
		Expect(on(c).SetDown(ctx, false)).To(Succeed())
		awaitSite(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("names an unknown template and makes the VM once it exists", func(ctx context.Context) {
		c := cluster(hypervisor, "template", 22)
		facts := on(c).Facts()
		c.Variables = map[string]string{facts.TemplateVariable: nextTemplate}
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitMachine(ctx, c, "False", infrav1.TemplateNotFoundReason, nextTemplate)
		awaitEvent(ctx, c.Namespace, infrav1.TemplateNotFoundReason)
		Expect(vms(ctx, c)).To(BeEmpty())
		Expect(on(c).RenameTemplate(ctx, facts.Template, nextTemplate)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(on(c).RenameTemplate(ctx, nextTemplate, facts.Template)).To(Succeed())
		})
		awaitMachine(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("names full storage and makes the VM once there is room", func(ctx context.Context) {
		c := cluster(hypervisor, "full", 23)
		Expect(on(c).SetFull(ctx, true)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(on(c).SetFull(ctx, false)).To(Succeed())
		})
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitMachine(ctx, c, "False", infrav1.InsufficientResourcesReason, on(c).Facts().Storage)
		awaitEvent(ctx, c.Namespace, infrav1.InsufficientResourcesReason)
		Expect(vms(ctx, c)).To(BeEmpty(), "a clone that failed leaves no VM")
		Expect(on(c).SetFull(ctx, false)).To(Succeed())
		awaitMachine(ctx, c, "True")
		deleteCluster(ctx, c)
	})

	It("does not change a VM with the same name that belongs to no machine", func(ctx context.Context) {
		c := cluster(hypervisor, "taken", 26)
		name := c.Name + "-worker"
		Expect(on(c).Clone(ctx, name)).To(Succeed())
		Expect(b.Create(ctx, c)).To(Succeed())
		awaitSite(ctx, c, "True")
		createMachine(ctx, c, name)
		Eventually(func(g Gomega, ctx context.Context) {
			machines, err := b.ListInfra(ctx, on(c), "Machine", c.Namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(machines).To(ContainElement(And(
				HaveField("GetName()", name),
				WithTransform(provisioned, And(HavePrefix("False "+infrav1.NameConflictReason), ContainSubstring("a VM with this machine's name"))),
			)))
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
		awaitEvent(ctx, c.Namespace, infrav1.NameConflictReason)
		Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: objectMeta(c)})).To(Succeed())
		Eventually(func(ctx context.Context) ([]string, error) { return vms(ctx, c) }).
			WithContext(ctx).WithTimeout(deleteTimeout).Should(ConsistOf(name), "only the VM that belongs to no machine remains")
		Expect(on(c).Destroy(ctx, name)).To(Succeed())
		deleteCluster(ctx, c)
	})
})

var _ = describeOn(firstOnly(), "Bad settings", func(hypervisor string) {
	It("names a malformed user data template", func(ctx context.Context) {
		c := cluster(hypervisor, "malformed", 24)
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
		Expect(b.Credentials(ctx, c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			list := &bootstrapv1.NovaConfigList{}
			g.Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
			g.Expect(message(&list.Items[0], bootstrapv1.DataSecretAvailableCondition)).To(And(
				HavePrefix("False "+bootstrapv1.RenderingFailedReason), ContainSubstring("/etc/motd")))
		}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed(), func() string { return describe(ctx, c) })
		awaitEvent(ctx, c.Namespace, bootstrapv1.RenderingFailedReason)
		Expect(vms(ctx, c)).To(BeEmpty())
		deleteCluster(ctx, c)
	})

	It("rejects an invalid CIDR, and the objects created with the Cluster can be deleted", func(ctx context.Context) {
		c := cluster(hypervisor, "cidr", 25)
		c.Variables = map[string]string{"SERVICE_CIDR": "10.300.0.0/16"}
		Expect(b.Create(ctx, c)).To(MatchError(ContainSubstring("10.300.0.0/16")))
		infra, err := b.NewInfra(on(c), "Cluster")
		Expect(err).NotTo(HaveOccurred())
		for _, o := range []client.Object{infra, &controlplanev1.NovaControlPlane{}} {
			Expect(b.Client.DeleteAllOf(ctx, o, client.InNamespace(c.Namespace))).To(Succeed())
		}
		deleteCluster(ctx, c)
	})

	It("refuses an even number of replicas", func(ctx context.Context) {
		c := cluster(hypervisor, "even", 27)
		c.ControlPlanes = 2
		Expect(b.Create(ctx, c)).To(MatchError(ContainSubstring("replicas must be odd")))
		awaitSite(ctx, c, "True")
		deleteCluster(ctx, c)
	})
})

// provisioned is a machine's condition about its VM.
func provisioned(machine bed.Infra) string {
	return message(machine, infrav1.VirtualMachineProvisionedCondition)
}

// createMachine makes a worker of a given name, past MachineDeployments.
func createMachine(ctx context.Context, c bed.Cluster, name string) {
	GinkgoHelper()
	kinds := on(c).Facts().Kinds
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kinds + "MachineTemplate"))
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, template)).To(Succeed())
	spec, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	Expect(err).NotTo(HaveOccurred())
	meta := objectMeta(c)
	meta.Name, meta.Labels = name, map[string]string{clusterv1.ClusterNameLabel: c.Name}
	infra := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	infra.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kinds + "Machine"))
	infra.SetNamespace(meta.Namespace)
	infra.SetName(meta.Name)
	infra.SetLabels(meta.Labels)
	config := &bootstrapv1.NovaConfig{ObjectMeta: meta}
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: c.Name,
		Version:     bed.KubernetesVersion,
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "NovaConfig", Name: name,
		}},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: kinds + "Machine", Name: name,
		},
	}}
	for _, o := range []client.Object{config, infra, machine} {
		Expect(b.Client.Create(ctx, o)).To(Succeed(), fmt.Sprintf("creating %T", o))
	}
}
