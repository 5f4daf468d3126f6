package bootstrap

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

const (
	operatorKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPs5rvPSsXd0aHl4pXBrlSQ0w1rGYqWBCRsV0gRIZLcr ops"
	pastHead    = "# authorities of the suite\n"
)

// secrets are the objects that settings of the suite name.
func secrets(namespace string) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	return []client.Object{
		&corev1.Secret{ObjectMeta: meta("proxy-login"), StringData: map[string]string{"username": proxyUser, "password": proxyPassword}},
		&corev1.Secret{ObjectMeta: meta("universe-token"), StringData: map[string]string{"token": token}},
		&corev1.ConfigMap{ObjectMeta: meta("authorities"), Data: map[string]string{"ca.crt": pastHead + string(u.authority)}},
		&corev1.Secret{ObjectMeta: meta("content"), StringData: map[string]string{"file": "from a Secret\n"}},
		&corev1.ConfigMap{ObjectMeta: meta("content"), Data: map[string]string{"file": "of {{ .Cluster.Name }}\n"}},
	}
}

// platform holds the platform settings of the workload cluster.
func platform() bootstrapv1.PlatformSpec {
	proxy := "http://" + address(proxyPort)
	authorities := bootstrapv1.FileSource{ConfigMap: bootstrapv1.KeyReference{Name: "authorities", Key: "ca.crt"}}
	return bootstrapv1.PlatformSpec{
		// Those of Kubernetes are on the hosts already.
		ImageRepository: bootstrapv1.DefaultImageRepository,
		APIServer:       bootstrapv1.APIServerSpec{CertSANs: []string{"api.nova.test"}, ExtraArgs: []bootstrapv1.Arg{{Name: "profiling", Value: ptr.To("false")}}},
		// API servers start while their issuer is away.
		Authentication: bootstrapv1.AuthenticationSpec{Issuers: []bootstrapv1.TokenIssuer{{
			Name: "staff", URL: "https://sso.nova.test/realms/staff", Audiences: []string{"kubernetes"}, CertificateAuthority: string(u.authority),
		}}},
		KubeProxy: bootstrapv1.KubeProxySpec{Mode: bootstrapv1.KubeProxyModeNFTables},
		Proxy: bootstrapv1.ProxySpec{
			HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: []string{"direct.nova.test", "192.0.2.0/24"},
			CredentialsSecretRef: bootstrapv1.SecretReference{Name: "proxy-login"}, TrustedCAFrom: authorities,
		},
		RegistryMirrors: []bootstrapv1.RegistryMirror{
			{Registry: "docker.io", Endpoints: []string{"https://" + hub + "/docker"}},
			{Registry: "*", Endpoints: []string{"https://" + hub + "/all"}},
			// Its own mirror, for the credentials and the CA.
			{Registry: hub, Endpoints: []string{"https://" + hub}},
		},
		MirrorCredentialsSecretRef: bootstrapv1.SecretReference{Name: "universe-token"},
		MirrorTrustedCAFrom:        authorities,
		NTP:                        bootstrapv1.NTPSpec{Servers: []string{"ntp.nova.test"}},
		DNS:                        bootstrapv1.DNSSpec{Nodes: bootstrapv1.NodeDNSSpec{Servers: []string{host.Gateway}, SearchDomains: []string{"nova.test"}}},
		APIServerLoadBalancer:      &bootstrapv1.APIServerLoadBalancerSpec{},
	}
}

// equip sets all machine fields of a NovaConfig in one that is suitable for hosts.
func equip(spec *bootstrapv1.NodeConfigSpec) {
	GinkgoHelper()
	spec.Users = []bootstrapv1.User{
		{Name: "ops", SSHAuthorizedKeys: []string{operatorKey}, Groups: []string{"adm", "operators"}, Sudo: "ALL=(ALL) NOPASSWD:ALL"},
		{Name: "plain", Shell: "/bin/sh"},
	}
	spec.Kernel.Sysctls = []bootstrapv1.Sysctl{{Name: "net.core.somaxconn", Value: "3210"}}
	spec.Containerd.Snippets = []bootstrapv1.ContainerdSnippet{{Name: "metrics", Content: "version = 2\n[metrics]\n  address = \"127.0.0.1:1338\"\n"}}
	spec.Kubelet.ExtraArgs = []bootstrapv1.Arg{{Name: "node-labels", Value: ptr.To("example.com/disk=fast")}, {Name: "max-pods", Value: ptr.To("42")}}
	for i, p := range spec.Kubeadm.ConfigPatches {
		if p.Kind == "KubeletConfiguration" {
			spec.Kubeadm.ConfigPatches[i].Patch += "registryPullQPS: 17\n"
		}
	}
	// The balancer's image is in the hub, and nowhere else.
	spec.Kubeadm.ImagePullPolicy = "IfNotPresent"
	spec.Kubeadm.Patches = []bootstrapv1.ComponentPatch{
		{Target: "kube-apiserver", Patch: `{"metadata": {"annotations": {"example.com/patched": "yes"}}}`},
		{Target: "kubeletconfiguration", Type: "merge", Patch: "eventRecordQPS: 23"},
	}
	spec.Files = append(spec.Files,
		bootstrapv1.File{Path: "/etc/suite/inline", Content: "inline\n", Permissions: "0604", Owner: "daemon:adm"},
		bootstrapv1.File{Path: "/home/ops/hello", Content: "hello\n", Permissions: "0600", Owner: "ops:operators"},
		bootstrapv1.File{Path: "/etc/suite/secret", ContentFrom: bootstrapv1.FileSource{Secret: bootstrapv1.KeyReference{Name: "content", Key: "file"}}},
		bootstrapv1.File{Path: "/etc/suite/configmap", ContentFrom: bootstrapv1.FileSource{ConfigMap: bootstrapv1.KeyReference{Name: "content", Key: "file"}}, ContentFormat: bootstrapv1.ContentFormatTemplate},
		bootstrapv1.File{Path: "/etc/suite/base64", Content: base64.StdEncoding.EncodeToString([]byte("base64\n")), Encoding: bootstrapv1.ContentEncodingBase64},
		bootstrapv1.File{Path: "/etc/suite/gzip", Content: packed("gzip\n"), Encoding: bootstrapv1.ContentEncodingGzipBase64},
		bootstrapv1.File{Path: "/etc/hosts", Content: "192.0.2.1 appended.nova.test\n", Append: ptr.To(true), Permissions: "0644"},
	)
	spec.PreKubeadmCommands = append(spec.PreKubeadmCommands, `echo "before $NODE_NAME on $NODE_IP" >/etc/suite/before; ! [ -e /etc/kubernetes/kubelet.conf ]`)
	spec.PostKubeadmCommands = append(spec.PostKubeadmCommands, `[ -e /etc/kubernetes/kubelet.conf ] && echo "after $NODE_NAME" >/etc/suite/after`)
}

// bootLoader adds a simulated boot loader to the machine, because a host has none. The kernel "has"
// its arguments from the next boot on, like the arguments of a real boot loader. All other parts of
// the restart are real.
func bootLoader(spec *bootstrapv1.NodeConfigSpec) {
	spec.Kernel.Arguments = []string{"suite.argument=1", "suite.other"}
	spec.Files = append(spec.Files,
		bootstrapv1.File{Path: "/etc/default/grub.d/00-suite.cfg", Content: "# Of the suite\n"},
		bootstrapv1.File{Path: "/usr/sbin/update-grub", Permissions: "0755", Content: `#!/bin/sh
set -eu
GRUB_CMDLINE_LINUX=$(cat /proc/cmdline)
for file in /etc/default/grub.d/*.cfg; do . "$file"; done
echo "$GRUB_CMDLINE_LINUX" >/etc/suite/cmdline
systemctl enable suite-kernel.service
`},
		bootstrapv1.File{Path: "/etc/systemd/system/suite-kernel.service", Permissions: "0644", Content: `[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/mount --bind /etc/suite/cmdline /proc/cmdline
[Install]
WantedBy=sysinit.target
`},
	)
}

func packed(content string) string {
	GinkgoHelper()
	out := &bytes.Buffer{}
	w := gzip.NewWriter(out)
	_, err := w.Write([]byte(content))
	Expect(err).NotTo(HaveOccurred())
	Expect(w.Close()).To(Succeed())
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// change changes a part of an object that is a spec of ours.
func change[T any](object *unstructured.Unstructured, do func(*T), fields ...string) {
	GinkgoHelper()
	spec := new(T)
	part, found, err := unstructured.NestedMap(object.Object, fields...)
	Expect(err).NotTo(HaveOccurred())
	if found {
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(part, spec)).To(Succeed())
	}
	do(spec)
	// The conversion through JSON omits empty fields.
	data, err := json.Marshal(spec)
	Expect(err).NotTo(HaveOccurred())
	part = map[string]any{}
	Expect(json.Unmarshal(data, &part)).To(Succeed())
	Expect(unstructured.SetNestedMap(object.Object, part, fields...)).To(Succeed())
}

// pod is one that runs an image wherever there is a node.
func pod(image, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "probe-"},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "probe", Image: image, ImagePullPolicy: corev1.PullAlways}},
			NodeName:                      node,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// expectEquipped expects on a host the settings of equip.
func expectEquipped(ctx context.Context, c bed.Cluster, vm string) {
	GinkgoHelper()
	Eventually(func() (string, error) { return b.Exec(ctx, vm, "cat", "/etc/suite/after") }).
		WithTimeout(podTimeout).Should(Equal("after " + vm))
	Expect(on(ctx, vm, "cat", "/etc/suite/before")).To(MatchRegexp(`^before ` + vm + ` on 10\.77\.0\.\d+$`))
	for path, want := range map[string]string{
		"inline": "inline", "secret": "from a Secret", "configmap": "of " + c.Name, "base64": "base64", "gzip": "gzip",
	} {
		Expect(on(ctx, vm, "cat", "/etc/suite/"+path)).To(Equal(want))
	}
	Expect(on(ctx, vm, "stat", "-c", "%a %U:%G", "/etc/suite/inline")).To(Equal("604 daemon:adm"))
	Expect(on(ctx, vm, "stat", "-c", "%a %U:%G", "/home/ops/hello")).To(Equal("600 ops:operators"))
	Expect(on(ctx, vm, "stat", "-c", "%U", "/home/ops")).To(Equal("ops"))
	Expect(on(ctx, vm, "getent", "hosts", "appended.nova.test")).To(HavePrefix("192.0.2.1"))

	Expect(on(ctx, vm, "cat", "/home/ops/.ssh/authorized_keys")).To(Equal(operatorKey))
	Expect(on(ctx, vm, "stat", "-c", "%a %U", "/home/ops/.ssh/authorized_keys")).To(Equal("600 ops"))
	Expect(on(ctx, vm, "id", "-Gn", "ops")).To(Equal("ops adm operators"))
	Expect(on(ctx, vm, "su", "ops", "-c", "sudo -n id -un")).To(Equal("root"))
	Expect(on(ctx, vm, "getent", "passwd", "plain")).To(HaveSuffix(":/bin/sh"))
	Expect(on(ctx, vm, "getent", "shadow", "ops")).To(HavePrefix("ops:!:"), "there is no password to guess")

	Expect(on(ctx, vm, "cat", "/proc/sys/net/core/somaxconn")).To(Equal("3210"))
	Expect(on(ctx, vm, "curl", "-sf", "http://127.0.0.1:1338/v1/metrics")).To(ContainSubstring("go_info"))
}

func describeEverything(hypervisor string, address string) {
	c := bed.Cluster{Name: "said-" + hypervisor, Namespace: "said-" + hypervisor, Hypervisor: hypervisor, ControlPlanes: 1, Workers: 1, Endpoint: address}
	var master, worker corev1.Node
	var tenant client.Client

	It("becomes ready with all fields set", func(ctx context.Context) {
		objects, err := b.Generate(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			switch o.GetKind() {
			case "NovaControlPlane":
				change(o, equip, "spec", "config")
				change(o, func(p *bootstrapv1.PlatformSpec) { *p = platform() }, "spec", "platform")
			case "NovaConfigTemplate":
				change(o, func(spec *bootstrapv1.NodeConfigSpec) {
					equip(spec)
					spec.Roles = []bootstrapv1.NodeRole{bootstrapv1.NodeRoleInfra, bootstrapv1.NodeRoleIngress}
					bootLoader(spec)
					spec.Taints = []bootstrapv1.Taint{{Key: "example.com/dedicated", Value: "suite", Effect: "PreferNoSchedule"}}
				}, "spec", "template", "spec")
			}
		}
		Expect(b.Credentials(ctx, c)).To(Succeed())
		create(ctx, secrets(c.Namespace)...)
		Expect(bed.Apply(ctx, b.Client, objects...)).To(Succeed())
		masters, others := awaitNodes(ctx, c, 1, 1)
		master, worker = masters[0], others[0]
		tenant, err = b.TenantClient(ctx, c.Key())
		Expect(err).NotTo(HaveOccurred())
	})

	It("has files, users and settings on every host", func(ctx context.Context) {
		for _, vm := range []string{master.Name, worker.Name} {
			By(vm)
			expectEquipped(ctx, c, vm)
			Expect(on(ctx, vm, "cat", "/etc/resolv.conf")).To(Equal("nameserver " + host.Gateway + "\nsearch nova.test"))
			Expect(on(ctx, vm, "cat", "/etc/systemd/timesyncd.conf.d/90-nova.conf")).To(ContainSubstring("ntp.nova.test"))
			Expect(on(ctx, vm, "grep", "-E", "^(registryPullQPS|eventRecordQPS|resolvConf):", "/var/lib/kubelet/config.yaml")).
				To(And(ContainSubstring("registryPullQPS: 17"), ContainSubstring("eventRecordQPS: 23"), ContainSubstring("resolvConf: /etc/nova/resolv.conf")))
			Expect(on(ctx, vm, "cat", "/etc/nova/resolv.conf")).To(Equal("nameserver " + host.Gateway + "\nsearch nova.test"))
		}
	})

	It("keeps no copy of its bootstrap data on the disk", func(ctx context.Context) {
		// Two lines of the key, as any copy has them, indented or not.
		key := strings.Split(on(ctx, master.Name, "cat", "/etc/kubernetes/pki/ca.key"), "\n")[1]
		for _, vm := range []string{master.Name, worker.Name} {
			By(vm)
			Expect(on(ctx, vm, "ls", "/etc/cloud/cloud-init.disabled")).NotTo(BeEmpty())
			Expect(on(ctx, vm, "find", "/var/lib/cloud/", "-name", "user-data.txt*", "-o", "-name", "cloud-config.txt", "-o", "-name", "obj.pkl")).To(BeEmpty())
			// grep fails where it finds nothing.
			const copies = `grep -rlsF -e "$1" -e "$2" -e "$3" /var/lib/cloud /var/log /var/tmp /tmp /root /home || true`
			Expect(on(ctx, vm, "sh", "-c", copies, "sh", key, proxyPassword, token)).To(BeEmpty())
			const keys = `find / -xdev -type f -size -1024k -exec grep -lsF -e "$1" {} + || true`
			for path := range strings.FieldsSeq(on(ctx, vm, "sh", "-c", keys, "sh", key)) {
				Expect(vm+path).To(HavePrefix(master.Name+"/etc/kubernetes/"), "where kubeadm needs it")
			}
		}
		for _, vm := range []string{master.Name, worker.Name} {
			Eventually(func(g Gomega, ctx context.Context) {
				data := &corev1.Secret{}
				g.Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: vm}, data)).To(Succeed())
				g.Expect(string(data.Data["value"])).To(HavePrefix("The machine has joined"))
			}).WithContext(ctx).WithTimeout(podTimeout).Should(Succeed(), vm)
		}
	})

	It("has started once more for the arguments of its kernel, and joined then", func(ctx context.Context) {
		Expect(on(ctx, worker.Name, "cat", "/proc/cmdline")).To(HaveSuffix(" suite.argument=1 suite.other"))
		log := on(ctx, worker.Name, "cat", "/var/log/nova-bootstrap.log")
		Expect(strings.Count(log, " Making "+worker.Name+" a node")).To(Equal(2))
		Expect(strings.Count(log, "Running kubeadm join")).To(Equal(1))
		left, err := b.Exec(ctx, worker.Name, "ls", "/var/lib/nova/first-boot")
		Expect(err).To(HaveOccurred(), "the saved state is deleted: %s", left)
	})

	It("has the node's labels, taints and size", func(ctx context.Context) {
		Eventually(func(g Gomega, ctx context.Context) {
			node := &corev1.Node{}
			g.Expect(tenant.Get(ctx, client.ObjectKey{Name: worker.Name}, node)).To(Succeed())
			g.Expect(node.Labels).To(And(
				HaveKey("node-role.kubernetes.io/infra"), HaveKey("node-role.kubernetes.io/ingress"), HaveKeyWithValue("example.com/disk", "fast")))
			g.Expect(node.Labels).NotTo(HaveKey("node-role.kubernetes.io/worker"))
			g.Expect(node.Spec.Taints).To(ConsistOf(
				HaveField("ToString()", "node-role.kubernetes.io/infra:NoSchedule"),
				HaveField("ToString()", "example.com/dedicated=suite:PreferNoSchedule")))
			g.Expect(node.Status.Capacity.Pods().Value()).To(BeEquivalentTo(42))
		}).WithContext(ctx).WithTimeout(podTimeout).Should(Succeed())
		server := &corev1.Pod{}
		Expect(tenant.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-apiserver-" + master.Name}, server)).To(Succeed())
		Expect(server.Annotations).To(HaveKeyWithValue("example.com/patched", "yes"))
		Expect(server.Spec.Containers[0].Command).To(ContainElements("--profiling=false", "--authentication-config=/etc/kubernetes/authentication/config.yaml"))
	})

	It("pulls from mirrors that only the proxy can reach, with token and authority", func(ctx context.Context) {
		for _, image := range []string{"probe:v1", "quay.io/team/probe:v1", hub + "/nova-universe/probe:v1"} {
			for _, node := range []string{master.Name, worker.Name} {
				p := pod(image, node)
				Expect(tenant.Create(ctx, p)).To(Succeed())
				Eventually(func(g Gomega, ctx context.Context) {
					g.Expect(tenant.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
					g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning), "%s on %s: %v", image, node, p.Status.ContainerStatuses)
				}).WithContext(ctx).WithTimeout(podTimeout).Should(Succeed())
			}
		}
		Expect(u.pulls()).To(ContainElements("/v2/docker/library/probe/manifests/v1", "/v2/all/team/probe/manifests/v1", "/v2/nova-universe/probe/manifests/v1"))
		Expect(u.connections()).To(ConsistOf(hub+":443"), "no other traffic uses the proxy, not even the workload cluster's own traffic")
		By("using the proxy and the authority from a shell")
		const ask = `. /etc/profile.d/nova-proxy.sh; curl -s -o /dev/null -w '%{http_code}' https://` + hub + `/v2/`
		Expect(on(ctx, worker.Name, "sh", "-c", ask)).To(Equal("401"), "TLS and proxy are passed, and the hub wants a token")
	})

	It("configures the proxy for modules, with the password only in a Secret", func(ctx context.Context) {
		proxy := &unstructured.Unstructured{}
		proxy.SetGroupVersionKind(schema.GroupVersionKind{Group: "config.nova-platform.io", Version: "v1alpha1", Kind: "Proxy"})
		Eventually(func(ctx context.Context) error {
			return tenant.Get(ctx, client.ObjectKey{Name: "cluster"}, proxy)
		}).WithContext(ctx).WithTimeout(podTimeout).Should(Succeed())
		spec := proxy.Object["spec"].(map[string]any)
		Expect(spec).To(And(
			HaveKeyWithValue("httpProxy", map[string]any{"server": "http://" + host.Gateway, "port": strconv.Itoa(proxyPort)}),
			HaveKeyWithValue("httpsProxy", map[string]any{"server": "http://" + host.Gateway, "port": strconv.Itoa(proxyPort)}),
			HaveKeyWithValue("credentials", map[string]any{"namespace": "kube-system", "name": "nova-proxy"}),
			HaveKeyWithValue("noProxy", And(ContainSubstring("direct.nova.test"), ContainSubstring("10.244.0.0/16"), ContainSubstring(c.Endpoint))),
		))
		Expect(base64.StdEncoding.DecodeString(spec["trustedCA"].(string))).To(BeEquivalentTo(pastHead + string(u.authority)))
		login := &corev1.Secret{}
		Expect(tenant.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "nova-proxy"}, login)).To(Succeed())
		Expect(login.Data).To(HaveKeyWithValue("password", []byte(proxyPassword)))
		By("refusing a second one")
		second := proxy.DeepCopy()
		second.SetName("other")
		second.SetResourceVersion("")
		Expect(tenant.Create(ctx, second)).To(MatchError(ContainSubstring("the only Proxy is named cluster")))
	})

	It("leaves no login where others than root can read it", func(ctx context.Context) {
		for _, vm := range []string{master.Name, worker.Name} {
			found := strings.Split(on(ctx, vm, "sh", "-c", `grep -rlsE 'universe-t0ken|p%27a|p.a:s@s' /etc /run/nova /var/lib/nova | xargs stat -c '%a %n'`), "\n")
			Expect(found).To(ContainElements("600 /etc/nova/proxy.env", "600 /etc/containerd/certs.d/docker.io/hosts.toml"))
			Expect(found).To(HaveEach(HavePrefix("600 ")))
		}
	})

	describeBalancer(c)
}

var _ = Describe("A NovaConfig with all fields", Ordered, func() {
	for _, hypervisor := range hypervisors() {
		Describe("on "+hypervisor, Ordered, Label(hypervisor), func() { describeEverything(hypervisor, endpoint(hypervisor, 10)) })
	}
})
