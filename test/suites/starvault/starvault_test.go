package starvault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/suites/harness"
)

var _ = func() bool {
	for _, program := range programs() {
		Describe("A cluster whose certificates are signed by "+program, Ordered, Label(program), func() { signedBy(program) })
	}
	return true
}()

func signedBy(program string) {
	// The server has no part in an upgrade but to sign, so one of them suffices.
	upgraded := program == "bao"
	c := &bed.Cluster{Name: "signed", Namespace: "signed", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.11"}

	BeforeAll(func(ctx context.Context) {
		options := bed.Options{Name: "starvault", Vault: program, InPlace: true}
		if upgraded {
			options.Versions = []string{bed.NewerVersion}
		}
		b = harness.Start(ctx, options)
		Expect(b.RegisterExtension(ctx)).To(Succeed())
		identity, err := b.PrepareVault(ctx, c.Namespace)
		Expect(err).NotTo(HaveOccurred())
		c.StarVault = identity
		programs, stop, err := b.ServePrograms(context.WithoutCancel(ctx), bed.KubernetesVersion, bed.NewerVersion)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stop)
		platform, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&bootstrapv1.PlatformSpec{KubernetesPrograms: programs, CertificateValidityPeriodDays: 8})
		Expect(err).NotTo(HaveOccurred())
		objects, err := b.Generate(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			if o.GetKind() == "NovaControlPlane" {
				for _, name := range []string{"kubernetesPrograms", "certificateValidityPeriodDays"} {
					Expect(unstructured.SetNestedField(o.Object, platform[name], "spec", "platform", name)).To(Succeed())
				}
				Expect(unstructured.SetNestedField(o.Object, "Only", "spec", "rollout", "inPlace")).To(Succeed())
			}
		}
		Expect(b.Credentials(ctx, *c)).To(Succeed())
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
	})

	It("is Ready, and no key of its CAs is outside of the server", func(ctx context.Context) {
		awaitHealthy(ctx, c)
		server, err := b.Vault()
		Expect(err).NotTo(HaveOccurred())
		requests, _, err := server.Requests(0)
		Expect(err).NotTo(HaveOccurred())
		figuref("requests to the server for a new cluster of 1 + 1, with the logins of two managers: %d", len(requests))
		expectNoKeys(ctx, c)
	})

	It("has no keys in the places where those of another cluster are found", func(ctx context.Context) {
		managed := &bed.Cluster{Name: "managed", Namespace: "managed", ControlPlanes: 1, Endpoint: "10.77.0.12"}
		Expect(b.Create(ctx, *managed)).To(Succeed())
		awaitHealthy(ctx, managed)
		Expect(b.CAKeys(ctx, *managed)).To(ContainElements(
			Equal("Secret managed/managed-ca, key tls.key"), Equal("Secret managed/managed-etcd, key tls.key"), Equal("Secret managed/managed-proxy, key tls.key"),
			HaveSuffix("/etc/kubernetes/pki/ca.key"), HaveSuffix("/etc/kubernetes/pki/etcd/ca.key"), HaveSuffix("/etc/kubernetes/pki/front-proxy-ca.key"),
			Equal("memory of kube-apiserver"),
		))
		expectNoKeys(ctx, c)
		cluster := &clusterv1.Cluster{}
		Expect(b.Client.Get(ctx, managed.Key(), cluster)).To(Succeed())
		Expect(b.Client.Delete(ctx, cluster)).To(Succeed())
	})

	It("has a worker that waits while the server is sealed or away, and joins afterwards", func(ctx context.Context) {
		before := nodes(ctx, c)
		Expect(before).To(HaveLen(2))
		server, err := b.Vault()
		Expect(err).NotTo(HaveOccurred())
		root, err := server.Client()
		Expect(err).NotTo(HaveOccurred())
		Expect(root.Sys().SealWithContext(ctx)).To(Succeed())
		c.Workers = 2
		scaleWorkers(ctx, c)
		awaitReason(ctx, c, bootstrapv1.VaultSealedReason)
		Expect(b.StopVault()).To(Succeed())
		away := time.Now()
		awaitReason(ctx, c, bootstrapv1.VaultUnreachableReason)
		Consistently(nodes).WithContext(ctx).WithArguments(c).WithTimeout(20*time.Second).Should(Equal(before), "the nodes run on")
		Expect(b.StartVault(ctx)).To(Succeed())
		back := time.Now()
		awaitHealthy(ctx, c)
		figuref("a worker was Ready %.0f s after the server was back; it was away for %.0f s", time.Since(back).Seconds(), back.Sub(away).Seconds())
		for name, node := range before {
			Expect(nodes(ctx, c)).To(HaveKeyWithValue(name, node))
		}
	})

	It("is scaled to three control plane machines, of which one is replaced", func(ctx context.Context) {
		c.ControlPlanes = 3
		started := time.Now()
		change(ctx, c, func(cp *controlplanev1.NovaControlPlane) { cp.Spec.Replicas = ptr.To(int32(c.ControlPlanes)) })
		awaitHealthy(ctx, c)
		figuref("1 to 3 control plane machines: %.0f s", time.Since(started).Seconds())
		machines, _, err := b.Machines(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		// The oldest is the one that ran "kubeadm init".
		first := slices.MinFunc(machines, func(a, b clusterv1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		Expect(b.Client.Delete(ctx, &first)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			machines, _, err := b.Machines(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(machines).NotTo(ContainElement(HaveField("Name", first.Name)))
		}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
		awaitHealthy(ctx, c)
		expectNoKeys(ctx, c)
	})

	It("has its certificates renewed in place", func(ctx context.Context) {
		before := nodes(ctx, c)
		machines, _, err := b.Machines(ctx, *c)
		Expect(err).NotTo(HaveOccurred())
		for i := range machines {
			Expect(b.CheckCertificates(ctx, machines[i].Name, 7)).To(Succeed())
			Expect(b.CheckCertificates(ctx, machines[i].Name, 9)).NotTo(Succeed())
		}
		inPlace(ctx, c, "certificates of the control plane machines renewed in place", func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Platform.CertificateValidityPeriodDays, cp.Spec.Rollout.Before.CertificatesExpiryDays = 30, 9
		}, func(g Gomega) {
			for i := range machines {
				g.Expect(b.CheckCertificates(ctx, machines[i].Name, 20)).To(Succeed())
			}
		})
		Expect(nodes(ctx, c)).To(Equal(before))
		expectNoKeys(ctx, c)
	})

	if !upgraded {
		return
	}
	It("has the next minor version in place", func(ctx context.Context) {
		before := nodes(ctx, c)
		inPlace(ctx, c, "the next minor version of the control plane machines in place", func(cp *controlplanev1.NovaControlPlane) {
			cp.Spec.Version = bed.NewerVersion
		}, func(g Gomega) {
			cp, err := b.ControlPlane(ctx, *c)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cp.Status.Versions).To(ConsistOf(HaveField("Version", bed.NewerVersion)))
		})
		Expect(nodes(ctx, c)).To(Equal(before))
		expectNoKeys(ctx, c)
	})
}

// expectNoKeys requires that no key of a CA of the cluster is outside of the server.
func expectNoKeys(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	started := time.Now()
	Expect(b.CAKeys(ctx, *c, bed.VaultName)).To(BeEmpty())
	figuref("search for keys of CAs: %.0f s", time.Since(started).Seconds())
}

// figuref puts a measure into the report.
func figuref(format string, args ...any) {
	GinkgoHelper()
	AddReportEntry("figure", fmt.Sprintf(format, args...))
}

func awaitHealthy(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	Eventually(b.CheckCluster).WithContext(ctx).WithArguments(*c).WithTimeout(bootTimeout).Should(Succeed(), func() string { return story(ctx, c) })
}

// inPlace changes the control plane in place, and waits until the change is done.
func inPlace(ctx context.Context, c *bed.Cluster, name string, how func(*controlplanev1.NovaControlPlane), done func(Gomega)) {
	GinkgoHelper()
	started := time.Now()
	change(ctx, c, how)
	Eventually(func(g Gomega) {
		done(g)
		g.Expect(b.CheckRolledOut(ctx, *c)).To(Succeed())
	}).WithContext(ctx).WithTimeout(upgradeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
	figuref("%s: %.0f s", name, time.Since(started).Seconds())
}

func change(ctx context.Context, c *bed.Cluster, how func(*controlplanev1.NovaControlPlane)) {
	GinkgoHelper()
	cp, err := b.ControlPlane(ctx, *c)
	Expect(err).NotTo(HaveOccurred())
	before := cp.DeepCopy()
	how(cp)
	Expect(b.Client.Patch(ctx, cp, client.MergeFrom(before))).To(Succeed())
}

func scaleWorkers(ctx context.Context, c *bed.Cluster) {
	GinkgoHelper()
	deployment := &clusterv1.MachineDeployment{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, deployment)).To(Succeed())
	before := deployment.DeepCopy()
	deployment.Spec.Replicas = ptr.To(int32(c.Workers))
	Expect(b.Client.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
}

// awaitReason waits until the bootstrap data of a machine waits for a reason, which an
// event has too.
func awaitReason(ctx context.Context, c *bed.Cluster, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		configs := &bootstrapv1.NovaConfigList{}
		g.Expect(b.Client.List(ctx, configs, client.InNamespace(c.Namespace))).To(Succeed())
		at := slices.IndexFunc(configs.Items, func(config bootstrapv1.NovaConfig) bool {
			return conditions.GetReason(&config, bootstrapv1.DataSecretAvailableCondition) == reason
		})
		g.Expect(at).NotTo(BeNumerically("<", 0))
		events := &eventsv1.EventList{}
		g.Expect(b.Client.List(ctx, events, client.InNamespace(c.Namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", reason), HaveField("Type", corev1.EventTypeWarning), HaveField("Regarding.Name", configs.Items[at].Name))))
	}).WithContext(ctx).WithTimeout(changeTimeout).Should(Succeed(), func() string { return story(ctx, c) })
}

// node has the properties of a Node that a replacement, a boot and a failure change.
type node struct {
	uid, boot string
	ready     corev1.ConditionStatus
}

func nodes(ctx context.Context, c *bed.Cluster) map[string]node {
	GinkgoHelper()
	workload, err := b.TenantClient(ctx, c.Key())
	Expect(err).NotTo(HaveOccurred())
	list := &corev1.NodeList{}
	Expect(workload.List(ctx, list)).To(Succeed())
	found := map[string]node{}
	for i := range list.Items {
		one := node{uid: string(list.Items[i].UID), boot: list.Items[i].Status.NodeInfo.BootID}
		for _, condition := range list.Items[i].Status.Conditions {
			if condition.Type == corev1.NodeReady {
				one.ready = condition.Status
			}
		}
		found[list.Items[i].Name] = one
	}
	return found
}

// story returns the conditions of the objects of a cluster.
func story(ctx context.Context, c *bed.Cluster) string {
	out := &strings.Builder{}
	if cp, err := b.ControlPlane(ctx, *c); err == nil {
		harness.PrintConditions(out, "NovaControlPlane", cp, cp.Name)
	}
	controlPlane, workers, err := b.Machines(ctx, *c)
	if err != nil {
		return err.Error()
	}
	for _, machine := range slices.Concat(controlPlane, workers) {
		harness.PrintConditions(out, "Machine", &machine, machine.Name)
	}
	return out.String()
}
