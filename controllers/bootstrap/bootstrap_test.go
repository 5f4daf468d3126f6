package bootstrap_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
)

var _ = Describe("Bootstrap data", func() {
	It("allows exactly one of three machines to initialize the cluster", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		names := []string{"cp-1", "cp-2", "cp-3"}
		for _, name := range names {
			b.machine(ctx, "blue", name, true, bootstrapv1.NovaConfigSpec{})
		}
		modes := map[string]int{}
		for _, name := range names {
			Eventually(b.config(ctx, name)).Should(beAvailable())
			secret, err := b.secret(ctx, name)()
			Expect(err).NotTo(HaveOccurred())
			modes[mode(secret)]++
			Expect(files(secret)).To(HaveKey("/etc/kubernetes/pki/ca.key"))
			Expect(nodeConfig(secret).Join.KubeVIP).To(ContainSubstring("value: 10.77.0.10"))
			if mode(secret) == "Init" {
				Expect(nodeConfig(secret).Join.Kubeadm).To(ContainSubstring("imageRepository: registry.example/k8s"))
			}
		}
		Expect(modes).To(Equal(map[string]int{"Init": 1, "JoinControlPlane": 2}))
	})

	It("creates a worker's data without a running API server", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Roles: []bootstrapv1.NodeRole{"infra"}}})
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())

		secret, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(secret.Type).To(Equal(clusterv1.ClusterSecretType))
		Expect(secret.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "blue"))
		Expect(secret.OwnerReferences).To(ConsistOf(And(
			HaveField("Kind", "NovaConfig"), HaveField("Name", "w-1"), HaveField("Controller", HaveValue(BeTrue())))))
		Expect(secret.Data).To(And(HaveLen(2), HaveKeyWithValue("format", []byte("cloud-config"))))
		Expect(mode(secret)).To(Equal("JoinWorker"))
		Expect(files(secret)).NotTo(HaveKey(ContainSubstring(".key")))
		own := expectOwnCertificate(ctx, b, cluster, secret, "nova:machine:"+string(machine.UID))
		Expect(time.Until(own.NotAfter)).To(BeNumerically("~", 24*time.Hour, time.Minute))

		// Cluster API copies the role from here to the node.
		Expect(b.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		Expect(machine.Labels).To(HaveKeyWithValue("node-role.kubernetes.io/infra", ""))
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Normal DataSecretCreated"))
	})

	It("has a token for the Puppet server, and does not block the deletion of a NovaConfig", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.cluster(ctx, "blue")
		authority := &corev1.Secret{}
		Expect(b.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: "blue-ca"}, authority)).To(Succeed())
		ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "puppet-ca"}, Data: map[string]string{"ca.pem": string(authority.Data["tls.crt"])}}
		Expect(b.Create(ctx, ca)).To(Succeed())
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{Platform: bootstrapv1.PlatformSpec{ConfigurationManager: bootstrapv1.ConfigurationManagerSpec{
			Server: "puppet.corp", TrustedCAFrom: bootstrapv1.FileSource{ConfigMap: bootstrapv1.KeyReference{Name: ca.Name, Key: "ca.pem"}},
		}}})
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		secret, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(nodeConfig(secret).ConfigurationManager.Token).NotTo(BeEmpty())
		config := &bootstrapv1.NovaConfig{}
		Expect(b.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: "w-1"}, config)).To(Succeed())
		Expect(config.Finalizers).To(ContainElement(bootstrapv1.PuppetFinalizer))
		Expect(b.Delete(ctx, config)).To(Succeed())
		Eventually(func() error { return b.Get(ctx, client.ObjectKeyFromObject(config), config) }).Should(Satisfy(apierrors.IsNotFound))
	})

	It("waits for its inputs one after another and continues immediately", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.bareCluster(ctx, "blue")
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		Expect(b.Update(ctx, cluster)).To(Succeed())
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.WaitingForInfrastructureReason, Not(BeEmpty())))

		b.provision(ctx, cluster)
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.WaitingForEndpointReason, Not(BeEmpty())))

		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.77.0.10", Port: 6443}
		Expect(b.Update(ctx, cluster)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.WaitingForCertificatesReason, ContainSubstring("certificates")))
		Expect(b.absent(ctx, "w-1")()).To(BeTrue())

		b.certificates(ctx, cluster)
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Normal DataSecretCreated"))
	})

	It("renews the certificate until the machine has joined, and never after", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(4 * time.Second)
		b.cluster(ctx, "blue")
		machine := b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		b.machine(ctx, "blue", "cp-1", true, bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		Eventually(b.config(ctx, "cp-1")).Should(beAvailable())
		first, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		init, err := b.secret(ctx, "cp-1")()
		Expect(err).NotTo(HaveOccurred())
		Eventually(b.secret(ctx, "w-1")).Should(HaveField("Data", Not(Equal(first.Data))))
		Expect(b.secret(ctx, "w-1")()).To(HaveField("UID", first.UID), "the Secret is renewed, not replaced")
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Normal DataSecretRefreshed"))

		b.patchMachine(ctx, machine, func() { machine.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
		booted, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Eventually(b.secret(ctx, "w-1")).Should(HaveField("Data", Not(Equal(booted.Data))), "a late reader gets a fresh certificate")

		b.patchMachine(ctx, machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "w-1"} })
		used := HaveField("Data", HaveKeyWithValue("value", []byte("The machine has joined with this bootstrap data, so it was removed.\n")))
		Eventually(b.secret(ctx, "w-1")).Should(used)
		// The check lasts far beyond the time of a renewal, with many causes for a reconcile.
		Consistently(func() (*corev1.Secret, error) {
			config, err := b.config(ctx, "w-1")()
			if err != nil {
				return nil, err
			}
			before := config.DeepCopy()
			metav1.SetMetaDataAnnotation(&config.ObjectMeta, "touched", time.Now().String())
			if err := b.Patch(ctx, config, client.MergeFrom(before)); err != nil {
				return nil, err
			}
			return b.secret(ctx, "w-1")()
		}).WithTimeout(5 * time.Second).WithPolling(250 * time.Millisecond).Should(used)
		Expect(b.secret(ctx, "cp-1")()).To(HaveField("ResourceVersion", init.ResourceVersion), "data without credentials is not renewed")
	})

	It("recreates deleted data in the same mode until the machine has joined", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		machine := b.machine(ctx, "blue", "cp-1", true, bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "cp-1")).Should(beAvailable())
		first, err := b.secret(ctx, "cp-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Delete(ctx, first)).To(Succeed())
		Eventually(b.secret(ctx, "cp-1")).Should(HaveField("UID", Not(Equal(first.UID))))
		again, err := b.secret(ctx, "cp-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(mode(again)).To(Equal("Init"))

		b.patchMachine(ctx, machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: "cp-1"} })
		// The reconciler sees the node a moment later.
		Eventually(func(g Gomega) {
			g.Expect(client.IgnoreNotFound(b.Delete(ctx, again.DeepCopy()))).To(Succeed())
			g.Consistently(b.absent(ctx, "cp-1")).Should(BeTrue())
		}).WithTimeout(20 * time.Second).Should(Succeed())
		Eventually(b.config(ctx, "cp-1")).Should(beAvailable())
	})

	It("reports a malformed template and continues after it is fixed", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Files: []bootstrapv1.File{{
			Path: "/etc/motd", ContentFormat: bootstrapv1.ContentFormatTemplate, Content: "{{ .Cluster.Nmae }}",
		}}}})
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.RenderingFailedReason,
			And(ContainSubstring("/etc/motd"), ContainSubstring("Nmae"))))
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Warning RenderingFailed"))
		Expect(b.absent(ctx, "w-1")()).To(BeTrue())

		config, err := b.config(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		config.Spec.Files[0].Content = "{{ .Cluster.Name }}"
		Expect(b.Update(ctx, config)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		secret, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(files(secret)).To(HaveKeyWithValue("/etc/motd", "blue"))
	})

	It("reports a missing Secret or ConfigMap and continues after it is created", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Files: []bootstrapv1.File{
			{Path: "/etc/a", ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.KeyReference{Name: "content", Key: "a"}}},
			{Path: "/etc/b", ContentFrom: bootstrapv1.FileSource{ConfigMap: bootstrapv1.KeyReference{Name: "content", Key: "b"}}},
		}}})
		unavailable := func(words string) OmegaMatcher {
			return haveState(metav1.ConditionFalse, bootstrapv1.SourceNotFoundReason, ContainSubstring(words))
		}
		Eventually(b.config(ctx, "w-1")).Should(unavailable("Secret content, which a file names, does not exist"))
		Eventually(b.events(ctx, "w-1")).Should(ContainElement("Warning SourceNotFound"))

		secret := &corev1.Secret{ObjectMeta: b.meta("content"), StringData: map[string]string{"other": "x"}}
		Expect(b.Create(ctx, secret)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(unavailable("Secret content has no key a"))

		secret.StringData = map[string]string{"a": "from a Secret\n"}
		Expect(b.Update(ctx, secret)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(unavailable("ConfigMap content, which a file names, does not exist"))

		Expect(b.Create(ctx, &corev1.ConfigMap{ObjectMeta: b.meta("content"), BinaryData: map[string][]byte{"b": {0, 1}}})).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		data, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(files(data)).To(And(HaveKeyWithValue("/etc/a", "from a Secret\n"), HaveKeyWithValue("/etc/b", "\x00\x01")))
	})

	It("reads the objects that the platform names and writes the Proxy object of the workload cluster", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.cluster(ctx, "blue")
		controlPlane := &controlplanev1.NovaControlPlane{}
		Expect(b.Get(ctx, client.ObjectKeyFromObject(cluster), controlPlane)).To(Succeed())
		controlPlane.Spec.Platform.Proxy = bootstrapv1.ProxySpec{
			HTTPProxy: "http://proxy.corp:3128", CredentialsSecretRef: bootstrapv1.SecretReference{Name: "proxy"},
			TrustedCAFrom: bootstrapv1.FileSource{ConfigMap: bootstrapv1.KeyReference{Name: "corporate", Key: "ca"}},
		}
		Expect(b.Update(ctx, controlPlane)).To(Succeed())
		b.machine(ctx, "blue", "cp-1", true, bootstrapv1.NovaConfigSpec{})
		unavailable := func(words string) OmegaMatcher {
			return haveState(metav1.ConditionFalse, bootstrapv1.SourceNotFoundReason, ContainSubstring(words))
		}
		Eventually(b.config(ctx, "cp-1")).Should(unavailable("ConfigMap corporate, which platform.proxy.trustedCAFrom names, does not exist"))
		ca, err := b.secret(ctx, "blue-ca")()
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Create(ctx, &corev1.ConfigMap{ObjectMeta: b.meta("corporate"), Data: map[string]string{"ca": string(ca.Data["tls.crt"])}})).To(Succeed())
		Eventually(b.config(ctx, "cp-1")).Should(unavailable("Secret proxy, which platform.proxy.credentialsSecretRef names, does not exist"))
		credentials := &corev1.Secret{ObjectMeta: b.meta("proxy"), StringData: map[string]string{"username": "nova"}}
		Expect(b.Create(ctx, credentials)).To(Succeed())
		Eventually(b.config(ctx, "cp-1")).Should(unavailable("Secret proxy, which platform.proxy.credentialsSecretRef names, lacks username and password"))
		credentials.StringData = map[string]string{"password": "hunter2"}
		Expect(b.Update(ctx, credentials)).To(Succeed())
		Eventually(b.config(ctx, "cp-1")).Should(beAvailable())

		data, err := b.secret(ctx, "cp-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(files(data)).To(HaveKeyWithValue("/etc/nova/proxy.env", ContainSubstring("HTTP_PROXY='http://nova:hunter2@proxy.corp:3128'\n")))
		b.expectProxy(ctx, nodeConfig(data).Join.Manifests)
	})

	It("sets the format of the data", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Format: bootstrapv1.FormatIgnition}})
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		data, err := b.secret(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(data.Data).To(HaveKeyWithValue("format", []byte("ignition")))
		Expect(string(data.Data["value"])).To(HavePrefix(`{"ignition":{`))
	})

	It("rejects MachinePools and names the alternative", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		config := &bootstrapv1.NovaConfig{ObjectMeta: b.meta("pool")}
		config.Labels = map[string]string{clusterv1.ClusterNameLabel: "blue"}
		config.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: "many", UID: "1",
		}}
		Expect(b.Create(ctx, config)).To(Succeed())
		Eventually(b.config(ctx, "pool")).Should(haveState(metav1.ConditionFalse, bootstrapv1.MachinePoolNotSupportedReason,
			And(HavePrefix("MachinePool many cannot use a NovaConfig"), HaveSuffix("use a MachineDeployment"))))
		Eventually(b.events(ctx, "pool")).Should(ContainElement("Warning MachinePoolNotSupported"))
		Expect(b.absent(ctx, "pool")()).To(BeTrue())
	})

	DescribeTable("rejects invalid settings", func(ctx SpecContext, spec bootstrapv1.NovaConfigSpec, words string) {
		b := newBed(ctx)
		Expect(b.Create(ctx, &bootstrapv1.NovaConfig{ObjectMeta: b.meta("w-1"), Spec: spec})).To(MatchError(ContainSubstring(words)))
	},
		Entry("taints of roles", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Taints: []bootstrapv1.Taint{{Key: "node-role.kubernetes.io/infra", Effect: "NoSchedule"}}}},
			"name the role in spec.roles"),
		Entry("encoded templates", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Files: []bootstrapv1.File{{
			Path: "/etc/x", Content: "x", ContentFormat: bootstrapv1.ContentFormatTemplate, Encoding: bootstrapv1.ContentEncodingBase64}}}},
			"a template cannot be encoded"),
		Entry("credentials in a proxy's address", bootstrapv1.NovaConfigSpec{Platform: bootstrapv1.PlatformSpec{
			Proxy: bootstrapv1.ProxySpec{HTTPProxy: "http://me:secret@proxy:3128"}}},
			"spec.platform.proxy.httpProxy in body should match"),
		Entry("credentials without a proxy", bootstrapv1.NovaConfigSpec{Platform: bootstrapv1.PlatformSpec{
			Proxy: bootstrapv1.ProxySpec{CredentialsSecretRef: bootstrapv1.SecretReference{Name: "x"}}}},
			"credentialsSecretRef and noProxy need httpProxy or httpsProxy"),
		Entry("boot commands for Ignition", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{
			Format: bootstrapv1.FormatIgnition, BootCommands: []string{"true"}}}, "bootCommands needs format cloud-config"),
		Entry("an address by interface and network", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{
			NodeAddress: bootstrapv1.NodeAddressSpec{Interface: "eth1", CIDRs: []string{"192.0.2.0/24"}}}}, "exactly one of interface and cidrs"),
		Entry("an address by an invalid network", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{
			NodeAddress: bootstrapv1.NodeAddressSpec{CIDRs: []string{"192.0.2.0"}}}}, "must be a CIDR"),
		Entry("a partition after the rest of the disk", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{
			Partitions: []bootstrapv1.PartitionTable{{Device: "/dev/sdb", SizesMiB: []int32{0, 1}}}}}, "only the last size can be 0"),
		Entry("an unknown format", bootstrapv1.NovaConfigSpec{NodeConfigSpec: bootstrapv1.NodeConfigSpec{Format: "talos"}}, "supported values"),
	)

	It("does nothing while paused", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.cluster(ctx, "blue")
		cluster.Spec.Paused = ptr.To(true)
		Expect(b.Update(ctx, cluster)).To(Succeed())
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "w-1")).Should(WithTransform(condition(clusterv1.PausedCondition), HaveField("Status", metav1.ConditionTrue)))
		Consistently(b.absent(ctx, "w-1")).Should(BeTrue())

		cluster.Spec.Paused = ptr.To(false)
		Expect(b.Update(ctx, cluster)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(And(beAvailable(),
			WithTransform(condition(clusterv1.PausedCondition), HaveField("Status", metav1.ConditionFalse))))
	})

	It("never overwrites another owner's Secret", func(ctx SpecContext) {
		b := newBed(ctx)
		foreign := &corev1.Secret{ObjectMeta: b.meta("w-1"), StringData: map[string]string{"value": "precious"}}
		Expect(b.Create(ctx, foreign)).To(Succeed())
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "w-1")).Should(haveState(metav1.ConditionFalse, bootstrapv1.InternalErrorReason,
			ContainSubstring("Secret w-1 exists and does not belong to this NovaConfig")))
		Expect(b.secret(ctx, "w-1")()).To(HaveField("Data", HaveKeyWithValue("value", []byte("precious"))))

		Expect(b.Delete(ctx, foreign)).To(Succeed())
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
	})

	It("adopts its Secret without an owner, as a backup restores it", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		b.cluster(ctx, "blue")
		b.worker(ctx, "blue", "w-1", bootstrapv1.NovaConfigSpec{})
		Eventually(b.config(ctx, "w-1")).Should(beAvailable())
		data := &corev1.Secret{}
		Expect(b.Get(ctx, client.ObjectKey{Namespace: b.meta("w-1").Namespace, Name: "w-1"}, data)).To(Succeed())
		owners := data.OwnerReferences
		data.OwnerReferences = nil
		Expect(b.Update(ctx, data)).To(Succeed())
		config, err := b.config(ctx, "w-1")()
		Expect(err).NotTo(HaveOccurred())
		config.Annotations = map[string]string{"restored": "true"}
		Expect(b.Update(ctx, config)).To(Succeed())
		Eventually(b.secret(ctx, "w-1")).Should(HaveField("OwnerReferences", Equal(owners)))
		Expect(owners).NotTo(BeEmpty())
	})

	It("takes the platform from the NovaConfig under another control plane provider", func(ctx SpecContext) {
		b := newBed(ctx)
		b.run(0)
		cluster := b.cluster(ctx, "blue")
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: "controlplane.cluster.x-k8s.io", Kind: "OtherControlPlane", Name: "blue",
		}
		Expect(b.Update(ctx, cluster)).To(Succeed())
		b.machine(ctx, "blue", "cp-1", true, bootstrapv1.NovaConfigSpec{Platform: bootstrapv1.PlatformSpec{ImageRepository: "own.example"}})
		Eventually(b.config(ctx, "cp-1")).Should(beAvailable())
		secret, err := b.secret(ctx, "cp-1")()
		Expect(err).NotTo(HaveOccurred())
		Expect(nodeConfig(secret).Join.Kubeadm).To(ContainSubstring("imageRepository: own.example"))
		Expect(nodeConfig(secret).Join.KubeVIP).To(BeEmpty())
	})
})

// expectProxy checks that an API server accepts the objects that a control plane machine applies.
func (b *bed) expectProxy(ctx context.Context, manifests []string) {
	GinkgoHelper()
	Expect(manifests).To(HaveLen(2))
	object := func(text string) *unstructured.Unstructured {
		GinkgoHelper()
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
		return o
	}
	// An apply of the agent rejects unknown fields.
	Expect(b.Create(ctx, object(manifests[0]), client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())
	credentials, proxy, found := strings.Cut(manifests[1], "---\n")
	Expect(found).To(BeTrue())
	Expect(credentials).To(ContainSubstring("hunter2"))
	Expect(proxy).NotTo(ContainSubstring("hunter2"))
	Eventually(func() error {
		return b.Create(ctx, object(proxy), client.FieldValidation(metav1.FieldValidationStrict))
	}).Should(Succeed())
	other := object(proxy)
	other.SetName("other")
	Expect(b.Create(ctx, other)).To(MatchError(ContainSubstring("the only Proxy is named cluster")))
}

// expectOwnCertificate checks the machine's join credential and returns its certificate.
func expectOwnCertificate(ctx context.Context, b *bed, cluster *clusterv1.Cluster, secret *corev1.Secret, user string) *x509.Certificate {
	GinkgoHelper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(nodeConfig(secret).Join.Kubeconfig))
	Expect(err).NotTo(HaveOccurred())
	Expect(config.Host).To(Equal("https://10.77.0.10:6443"))
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	Expect(err).NotTo(HaveOccurred())
	ca, err := b.secret(ctx, cluster.Name+"-ca")()
	Expect(err).NotTo(HaveOccurred())
	Expect(config.CAData).To(Equal(ca.Data["tls.crt"]))
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(config.CAData)).To(BeTrue())
	Expect(pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})).NotTo(BeEmpty())
	Expect(pair.Leaf.Subject.CommonName).To(Equal(user))
	Expect(pair.Leaf.Subject.Organization).To(Equal([]string{"system:bootstrappers:nova"}))
	return pair.Leaf
}
