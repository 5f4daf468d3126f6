package puppet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
	"github.com/nova-platform/cluster-api-provider-nova/internal/enrollment"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/puppet"
)

// How long things may take on a slow machine that builds something else.
const (
	bootTimeout  = 10 * time.Minute
	applyTimeout = 6 * time.Minute
	// mirrorTimeout is shorter than the safety nets of reconcilers, so only a watch can
	// be in time.
	mirrorTimeout = 25 * time.Second
)

// interval is the shortest interval of the agents, in seconds.
const interval = int64(60)

// keySecret has the keys that the bootstrap manager signs tokens with.
var keySecret = client.ObjectKey{Namespace: "nova-bootstrap-system", Name: "nova-bootstrap-configuration-manager"}

// failing is a class that fails on one node.
const failing = `class profile::failing {
  exec { 'mount data':
    command => '/bin/false',
  }
}
`

var _ = Describe("A cluster with a configuration manager", Ordered, func() {
	c := bed.Cluster{Name: "managed", Namespace: "managed", ControlPlanes: 1, Workers: 2, Endpoint: "10.77.0.11"}

	BeforeAll(func(ctx context.Context) {
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Credentials(ctx, c)).To(Succeed())
		certificate, err := os.ReadFile(server.CA())
		Expect(err).NotTo(HaveOccurred())
		ca := &corev1.ConfigMap{Data: map[string]string{"ca.pem": string(certificate)}}
		ca.Namespace, ca.Name = c.Namespace, "puppet-ca"
		Expect(b.Client.Create(ctx, ca)).To(Succeed())
		for _, o := range objects {
			switch o.GetKind() {
			case "NovaControlPlane":
				Expect(unstructured.SetNestedField(o.Object, map[string]any{
					"server": serverName, "intervalSeconds": interval,
					"trustedCAFrom": map[string]any{"configMap": map[string]any{"name": ca.Name, "key": "ca.pem"}},
				}, "spec", "platform", "configurationManager")).To(Succeed())
				addHost(o, "spec", "config", "files")
			case "NovaConfigTemplate":
				addHost(o, "spec", "template", "spec", "files")
			}
		}
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())

		By("giving the Puppet server the public key of the management cluster, as an administrator does")
		key := &corev1.Secret{}
		Eventually(b.Client.Get).WithContext(ctx).WithArguments(keySecret, key).WithTimeout(time.Minute).Should(Succeed())
		Expect(server.Trust("management", key.Data["public.pem"])).To(Succeed())
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(Succeed())
	})

	It("has nodes with certificates of their own, which have the catalog of their role", func(ctx context.Context) {
		for _, m := range machines(ctx, c) {
			awaitApplied(ctx, c, m.Name, nodeconfig.AppliedReason)
			role := "worker"
			if _, is := m.Labels[clusterv1.MachineControlPlaneLabel]; is {
				role = "control-plane"
			}
			Expect(b.Exec(ctx, m.Name, "cat", "/etc/motd")).To(HavePrefix("Node of cluster managed/managed, role " + role + "."))
			Expect(server.Certificate(certname(&m))).To(BeAnExistingFile())

			By("leaving no token on the node")
			_, err := b.Exec(ctx, m.Name, "grep", "-r", "challengePassword", "/etc/nova", "/run/nova", "/var/lib/nova")
			Expect(err).To(HaveOccurred())
			Expect(b.Exec(ctx, m.Name, "cat", "/var/lib/nova/puppet.json")).NotTo(ContainSubstring(`"token"`))
		}
	})

	It("reports a resource that fails, and that it does not fail any more", func(ctx context.Context) {
		By("letting Ready of the workers wait for it")
		patchWorkers(ctx, c, fmt.Sprintf(`{"spec":{"template":{"spec":{"readinessGates":[{"conditionType":%q}]}}}}`, bootstrapv1.ConfigurationAppliedCondition))
		worker := workers(ctx, c)[0]
		Eventually(machineIs).WithContext(ctx).WithArguments(c, worker.Name, clusterv1.ReadyCondition).WithTimeout(applyTimeout).Should(HavePrefix("True"))
		data := "data/nodes/" + certname(&worker) + ".yaml"
		Expect(server.Write("modules/profile/manifests/failing.pp", failing)).To(Succeed())
		Expect(server.Write(data, "classes: [profile::failing]\n")).To(Succeed())
		Expect(awaitApplied(ctx, c, worker.Name, nodeconfig.ResourceFailedReason)).To(And(
			HavePrefix("/Stage[main]/Profile::Failing/Exec[mount data]/returns: "), ContainSubstring("'/bin/false' returned 1")))
		Eventually(machineIs).WithContext(ctx).WithArguments(c, worker.Name, bootstrapv1.ConfigurationAppliedCondition).WithTimeout(mirrorTimeout).Should(
			HavePrefix("False ResourceFailed /Stage[main]/Profile::Failing/Exec[mount data]/returns: "))
		Eventually(machineIs).WithContext(ctx).WithArguments(c, worker.Name, clusterv1.ReadyCondition).WithTimeout(mirrorTimeout).Should(
			And(HavePrefix("False"), ContainSubstring("Profile::Failing")))
		Expect(server.Write(data, "--- {}\n")).To(Succeed())
		awaitApplied(ctx, c, worker.Name, nodeconfig.AppliedReason)
		Eventually(machineIs).WithContext(ctx).WithArguments(c, worker.Name, bootstrapv1.ConfigurationAppliedCondition).WithTimeout(mirrorTimeout).Should(Equal("True Applied"))
		Eventually(machineIs).WithContext(ctx).WithArguments(c, worker.Name, clusterv1.ReadyCondition).WithTimeout(mirrorTimeout).Should(HavePrefix("True"))
	})

	It("revokes the certificate of a Machine that is deleted", func(ctx context.Context) {
		By("giving nova-bootstrap a credential, as an administrator does")
		certificate, key, err := server.Generate(ctx, puppet.Revoker)
		Expect(err).NotTo(HaveOccurred())
		authority, err := os.ReadFile(server.CA())
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{Data: map[string][]byte{"server": []byte("localhost"), "ca.crt": authority, "tls.crt": certificate, "tls.key": key}}
		secret.Namespace, secret.Name = keySecret.Namespace, "nova-bootstrap-puppet-revocation"
		Expect(b.Client.Create(ctx, secret)).To(Succeed())

		worker := workers(ctx, c)[0]
		copied := copyCertificate(ctx, &worker)
		Expect(copied.catalogCode(ctx)).To(Equal("200"))
		Expect(b.Client.Delete(ctx, &worker)).To(Succeed())
		awaitDeleted(ctx, &worker)
		Expect(eventsOf(ctx, &worker)).To(ContainElement(HavePrefix("PuppetCertificateRevoked Certificate " + certname(&worker))))
		Expect(server.Certificate(certname(&worker))).NotTo(BeAnExistingFile())
		By("refusing a copy of the certificate")
		Eventually(copied.catalogCode).WithContext(ctx).WithTimeout(time.Minute).ShouldNot(Equal("200"))
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(Succeed())
	})

	It("runs while the server is away, and new nodes get their catalog later", func(ctx context.Context) {
		for _, m := range machines(ctx, c) {
			awaitApplied(ctx, c, m.Name, nodeconfig.AppliedReason)
		}
		By("stopping the server")
		server.Stop()
		for _, m := range machines(ctx, c) {
			Expect(awaitApplied(ctx, c, m.Name, nodeconfig.PuppetRunFailedReason)).To(ContainSubstring("Connection refused"))
		}
		By("replacing a worker")
		old := workers(ctx, c)
		started := time.Now()
		Expect(b.Client.Delete(ctx, &old[0])).To(Succeed())
		awaitDeleted(ctx, &old[0])
		AddReportEntry("figure", fmt.Sprintf("deletion of a Machine while the Puppet server is away: %.0f s", time.Since(started).Seconds()))
		Expect(eventsOf(ctx, &old[0])).To(ContainElement(HavePrefix("PuppetCertificateKept Certificate " + certname(&old[0]))))
		Eventually(b.CheckCluster).WithContext(ctx).WithArguments(c).WithTimeout(bootTimeout).Should(Succeed())
		for _, m := range workers(ctx, c) {
			if m.Name != old[1].Name {
				awaitApplied(ctx, c, m.Name, nodeconfig.NotEnrolledReason)
			}
		}

		By("starting the server again")
		Expect(server.Run(ctx)).To(Succeed())
		for _, m := range machines(ctx, c) {
			awaitApplied(ctx, c, m.Name, nodeconfig.AppliedReason)
		}
	})
})

// addHost adds a line with the address of the server to /etc/hosts.
func addHost(o *unstructured.Unstructured, fields ...string) {
	GinkgoHelper()
	files, _, err := unstructured.NestedSlice(o.Object, fields...)
	Expect(err).NotTo(HaveOccurred())
	files = append(files, map[string]any{"path": "/etc/hosts", "append": true, "permissions": "0644", "content": bridge + " " + serverName + "\n"})
	Expect(unstructured.SetNestedSlice(o.Object, files, fields...)).To(Succeed())
}

func machines(ctx context.Context, c bed.Cluster) []clusterv1.Machine {
	GinkgoHelper()
	planes, workers, err := b.Machines(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	return append(planes, workers...)
}

func workers(ctx context.Context, c bed.Cluster) []clusterv1.Machine {
	GinkgoHelper()
	_, workers, err := b.Machines(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	return workers
}

func certname(m *clusterv1.Machine) string { return enrollment.Certname(m.Name, string(m.UID)) }

// applied returns reason and message of the condition of a Node, if it has one.
func applied(ctx context.Context, c bed.Cluster, name string) (reason, message string, err error) {
	workload, err := b.TenantClient(ctx, c.Key())
	if err != nil {
		return "", "", err //nolint:wrapcheck // a test
	}
	node := &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return "", "", err //nolint:wrapcheck // a test
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != nodeconfig.ConfigurationCondition {
			continue
		}
		if is := condition.Status == corev1.ConditionTrue; is != (condition.Reason == nodeconfig.AppliedReason) {
			return "", "", fmt.Errorf("the condition is %s with reason %s", condition.Status, condition.Reason)
		}
		return condition.Reason, condition.Message, nil
	}
	return "", "", nil
}

// awaitApplied waits until the condition of a Node has a reason, and returns its message.
// The API server of a cluster with one control plane machine may be away for a moment.
func awaitApplied(ctx context.Context, c bed.Cluster, name, reason string) (message string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		got, text, err := applied(ctx, c, name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got).To(Equal(reason), text)
		message = text
	}).WithContext(ctx).WithTimeout(applyTimeout).Should(Succeed(), "Node %s", name)
	return message
}

// patchWorkers changes the MachineDeployment of the workers.
func patchWorkers(ctx context.Context, c bed.Cluster, patch string) {
	GinkgoHelper()
	list := &clusterv1.MachineDeploymentList{}
	Expect(b.Client.List(ctx, list, client.InNamespace(c.Namespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	Expect(b.Client.Patch(ctx, &list.Items[0], client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// machineIs returns status, reason and message of a condition of a Machine.
func machineIs(ctx context.Context, c bed.Cluster, name, condition string) (string, error) {
	machine := &clusterv1.Machine{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, machine); err != nil {
		return "", err //nolint:wrapcheck // a test
	}
	found := conditions.Get(machine, condition)
	if found == nil {
		return "", nil
	}
	return strings.TrimSpace(string(found.Status) + " " + found.Reason + " " + found.Message), nil
}

// awaitDeleted waits until a Machine does not exist.
func awaitDeleted(ctx context.Context, m *clusterv1.Machine) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) bool {
		return apierrors.IsNotFound(b.Client.Get(ctx, client.ObjectKeyFromObject(m), &clusterv1.Machine{}))
	}).WithContext(ctx).WithTimeout(bootTimeout).Should(BeTrue())
}

// eventsOf returns reason and note of the events about a Machine.
func eventsOf(ctx context.Context, m *clusterv1.Machine) (found []string) {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(b.Client.List(ctx, list, client.InNamespace(m.Namespace))).To(Succeed())
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.UID == m.UID {
			found = append(found, e.Reason+" "+e.Note)
		}
	}
	return found
}

// copyCertificate copies the certificate of a worker and its key.
func copyCertificate(ctx context.Context, m *clusterv1.Machine) *node {
	GinkgoHelper()
	n := &node{dir: GinkgoT().TempDir(), Identity: enrollment.Identity{Certname: certname(m)}}
	for _, file := range []string{"certs/ca.pem", "certs/" + n.Certname + ".pem", "private_keys/" + n.Certname + ".pem"} {
		content, err := b.Exec(ctx, m.Name, "cat", "/var/lib/nova/puppet/ssl/"+file)
		Expect(err).NotTo(HaveOccurred())
		to := filepath.Join(n.dir, "ssldir", file)
		Expect(os.MkdirAll(filepath.Dir(to), 0o700)).To(Succeed())
		Expect(os.WriteFile(to, []byte(content+"\n"), 0o600)).To(Succeed())
	}
	return n
}
