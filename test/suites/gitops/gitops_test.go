package gitops

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

const fluxNamespace = "flux-system"

// acme and globex are the customers of the sample. initech is one that is added to it.
var (
	acme    = bed.Cluster{Name: "acme", Namespace: "acme", Hypervisor: bed.VSphere, ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.20"}
	globex  = bed.Cluster{Name: "globex", Namespace: "globex", Hypervisor: bed.ZVirt, ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.70"}
	initech = bed.Cluster{Name: "initech", Namespace: "initech", Hypervisor: bed.Proxmox, ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.80"}
)

// sampled are the hypervisors of the sample.
var sampled = []string{"vcenter-one", "engine-one", "pve-one"}

// tenants are the clusters by their folder.
func tenants() map[string]bed.Cluster {
	all := map[string]bed.Cluster{"tenants/test/acme": acme}
	if everything {
		all["tenants/production/globex"], all["tenants/production/initech"] = globex, initech
	}
	return all
}

// fillIn replaces the reader's own values in the sample with those of the test environment.
func fillIn(ctx context.Context, r repository) {
	GinkgoHelper()
	r.edit("flux/repository.yaml", "https://git.example/management.git", b.GitURL("management"))
	r.edit("modules/base.yaml", "https://git.example/catalogue.git", b.GitURL("catalogue"))
	r.edit("tenants/test/acme/cluster.yaml", "192.0.2.10", acme.Endpoint)
	r.edit("tenants/production/globex/cluster.yaml", "192.0.2.20", globex.Endpoint, "replicas: 3", "replicas: 1", "replicas: 2", "replicas: 1")
	if everything {
		r.edit("tenants/test/acme/cluster.yaml", bed.KubernetesVersion, bed.OlderVersion)
	}
	if everything {
		r.run(ctx, "cp", "-R", "tenants/production/globex", "tenants/production/initech")
		for _, file := range []string{"cluster.yaml", "kustomization.yaml", "namespace.yaml"} {
			r.edit("tenants/production/initech/"+file, "globex", "initech")
		}
		r.edit("tenants/production/initech/cluster.yaml", globex.Endpoint, initech.Endpoint, "nova-zvirt", "nova-proxmox")
		r.edit("tenants/production/initech/kustomization.yaml", "engine-one", "pve-one")
	}
	thumbprint := strings.Repeat("AB:CD:", 15) + "AB:CD"
	v, err := b.Variables(ctx, acme)
	Expect(err).NotTo(HaveOccurred())
	r.edit("credentials/vcenter-one.yaml", "vcenter.example", v["VSPHERE_SERVER"], thumbprint, v["VSPHERE_TLS_THUMBPRINT"])
	r.edit("hypervisors/vcenter-one/variables.yaml",
		"datacenter: dc-one", "datacenter: "+v["VSPHERE_DATACENTER"], "resourcePool: tenants", "resourcePool: "+v["VSPHERE_RESOURCE_POOL"],
		"folder: tenants", "folder: "+v["VSPHERE_FOLDER"], "datastore: ssd", "datastore: "+v["VSPHERE_DATASTORE"],
		"network, value: tenants", "network, value: "+v["VSPHERE_NETWORK"], "debian-13-kube-", "nova-node-")
	v, err = b.Variables(ctx, globex)
	Expect(err).NotTo(HaveOccurred())
	r.edit("credentials/engine-one.yaml", "engine.example", v["ZVIRT_SERVER"], thumbprint, v["ZVIRT_TLS_THUMBPRINT"])
	r.edit("hypervisors/engine-one/variables.yaml",
		"computeCluster: Default", "computeCluster: "+v["ZVIRT_CLUSTER"], "storageDomain: data", "storageDomain: "+v["ZVIRT_STORAGE_DOMAIN"],
		"value: tenants/tenants", "value: "+v["ZVIRT_VNIC_PROFILE"], "debian-13-kube-", "nova-node-")
	v, err = b.Variables(ctx, initech)
	Expect(err).NotTo(HaveOccurred())
	h, err := b.Hypervisor(initech.Hypervisor)
	Expect(err).NotTo(HaveOccurred())
	r.edit("credentials/pve-one.yaml", "pve.example", v["PROXMOX_SERVER"], `tls: {thumbprint: "`+thumbprint+`"}`, `tls: {caBundle: "`+v["PROXMOX_CA_BUNDLE"]+`"}`)
	r.edit("hypervisors/pve-one/variables.yaml", "storage: ssd", "storage: "+h.Facts().Storage, "network, value: vmbr0", "network, value: "+v["PROXMOX_NETWORK"], "debian-13-kube-", "nova-node-")
	for _, hypervisor := range sampled {
		suitHosts(r, "hypervisors/"+hypervisor+"/variables.yaml")
	}
}

// suitHosts adds the settings that only hosts of a test environment need to the common settings of
// the clusters on a hypervisor.
func suitHosts(r repository, path string) {
	GinkgoHelper()
	variables, err := bed.ClassVariables()
	Expect(err).NotTo(HaveOccurred())
	file, err := os.OpenFile(filepath.Join(r.dir, path), os.O_APPEND|os.O_WRONLY, 0o644)
	Expect(err).NotTo(HaveOccurred())
	write := func(path string, value any) {
		GinkgoHelper()
		line, err := json.Marshal(map[string]any{"op": "add", "path": path, "value": value})
		Expect(err).NotTo(HaveOccurred())
		_, err = file.WriteString("- " + string(line) + "\n")
		Expect(err).NotTo(HaveOccurred())
	}
	for name, value := range variables {
		write("/spec/topology/variables/-", map[string]any{"name": name, "value": value})
	}
	write("/spec/clusterNetwork", map[string]any{"pods": map[string]any{"cidrBlocks": []string{"10.244.0.0/16"}}})
	Expect(file.Close()).To(Succeed())
}

// encrypt writes the credentials of the hypervisors and encrypts them, as in the guide.
func encrypt(ctx context.Context, r repository) {
	GinkgoHelper()
	r.run(ctx, programs["age-keygen"], "-o", r.key)
	recipient := strings.TrimSpace(r.run(ctx, programs["age-keygen"], "-y", r.key))
	r.edit(".sops.yaml", "age1replace0with0what0age0keygen0prints", recipient)
	for _, account := range []struct{ hypervisor, file, user string }{
		{bed.VSphere, "credentials/vcenter-one.secret.yaml", "nova@vsphere.local"},
		{bed.ZVirt, "credentials/engine-one.secret.yaml", "nova@internal"},
		{bed.Proxmox, "credentials/pve-one.secret.yaml", "nova@pve!capi"},
	} {
		h, err := b.Hypervisor(account.hypervisor)
		Expect(err).NotTo(HaveOccurred())
		credentials, err := h.Credentials()
		Expect(err).NotTo(HaveOccurred())
		r.edit(account.file, account.user, credentials["username"], "change-me", credentials["password"])
		r.run(ctx, programs["sops"], "encrypt", "--in-place", account.file)
		data, err := os.ReadFile(filepath.Join(r.dir, account.file))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).To(And(ContainSubstring("ENC[AES256_GCM"), Not(ContainSubstring(credentials["password"]))))
	}
}

// aside moves folders out of the clone and returns the function that moves them back.
func aside(r repository, paths ...string) func() {
	GinkgoHelper()
	move := func(from, to string) {
		GinkgoHelper()
		for _, path := range paths {
			Expect(os.MkdirAll(filepath.Dir(filepath.Join(to, path)), 0o755)).To(Succeed())
			Expect(os.Rename(filepath.Join(from, path), filepath.Join(to, path))).To(Succeed())
		}
	}
	move(r.dir, r.aside)
	return func() { GinkgoHelper(); move(r.aside, r.dir) }
}

var _ = Describe("A management repository", Ordered, func() {
	var (
		r        repository
		began    string // the commit without customers
		putBack  func()
		identity string // the Cluster's, before anything threatened it
	)

	BeforeAll(func(ctx context.Context) {
		r = begin(ctx)
		DeferCleanup(func() error {
			if follower == nil {
				return nil
			}
			return follower.Stop()
		})
	})

	It("begins with classes, sets of modules and encrypted credentials", func(ctx context.Context) {
		Expect(b.PublishCatalogue(ctx, "v1.0.0")).To(Succeed())
		fillIn(ctx, r)
		encrypt(ctx, r)
		folders := []string{"tenants/test/acme", "tenants/production/globex"}
		if everything {
			folders = append(folders, "tenants/production/initech")
		}
		putBack = aside(r, folders...)
		r.commit(ctx, "Begin")
		began = r.head(ctx)
		r.run(ctx, programs["kubectl"], "create", "namespace", fluxNamespace)
		r.run(ctx, programs["kubectl"], "create", "secret", "generic", "sops-age", "--namespace", fluxNamespace, "--from-file=age.agekey="+r.key)
		r.run(ctx, programs["kubectl"], "apply", "--kustomize", "flux")
		for _, wave := range waves {
			Eventually(ready).WithContext(ctx).WithArguments(wave).WithTimeout(reportTimeout).Should(HavePrefix("True"), wave)
		}
		h, err := b.Hypervisor(acme.Hypervisor)
		Expect(err).NotTo(HaveOccurred())
		credentials, err := h.Credentials()
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{}
		Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: "nova-vsphere-system", Name: "vcenter-one"}, secret)).To(Succeed())
		Expect(secret.Data).To(HaveKeyWithValue("password", []byte(credentials["password"])), "Flux decrypts it")
	})

	It("creates clusters by a commit", func(ctx context.Context) {
		putBack()
		if !everything {
			By("leaving the second wave a Namespace, for which nothing boots")
			Expect(os.Remove(filepath.Join(r.dir, "tenants/production/globex/cluster.yaml"))).To(Succeed())
			r.edit("tenants/production/globex/kustomization.yaml", "components: [../../../hypervisors/engine-one]\n", "", "  - cluster.yaml\n", "")
		}
		r.commit(ctx, "Add tenants")
		r.look(ctx)
		if everything {
			Eventually(message).WithContext(ctx).WithArguments("tenants-production").WithTimeout(reportTimeout).Should(
				ContainSubstring("dependency 'flux-system/tenants-test' is not ready"), "it waits for the first wave")
			Expect(clusters(ctx)).NotTo(ContainElement(BeElementOf("globex", "initech")))
		}
		for folder, c := range tenants() {
			wave := strings.ReplaceAll(filepath.Dir(folder), "/", "-")
			Eventually(ready).WithContext(ctx).WithArguments(wave).WithTimeout(2 * bootTimeout).Should(HavePrefix("True"))
			Eventually(b.ReadyNodes).WithContext(ctx).WithArguments(c).WithTimeout(reportTimeout).Should(HaveLen(c.ControlPlanes + c.Workers))
			Eventually(func(g Gomega, ctx context.Context) {
				t, err := b.TenantClient(ctx, c.Key())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(t.Get(ctx, client.ObjectKey{Name: "nova-platform"}, &schedulingv1.PriorityClass{})).To(Succeed(), "its modules are there")
			}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
		}
		identity = uid(ctx, acme)
	})

	It("changes a cluster by a commit", func(ctx context.Context) {
		r.edit("tenants/test/acme/cluster.yaml", "name: worker, replicas: 1", "name: worker, replicas: 2")
		r.commit(ctx, "Give acme another worker")
		r.look(ctx)
		Eventually(b.VMsOf).WithContext(ctx).WithArguments(acme).WithTimeout(reportTimeout).Should(HaveLen(3))
	})

	if everything {
		It("upgrades a cluster by a commit", func(ctx context.Context) { upgrades(ctx, r) })
	}

	It("rolls out the shared objects of all tenants of a hypervisor, one wave after the other", func(ctx context.Context) { rollsOut(ctx, r) })

	if everything {
		It("moves a tenant to the class of the next release, and replaces no machine", func(ctx context.Context) { changesClass(ctx, r) })
	}

	It("keeps a cluster whose commit is reverted", func(ctx context.Context) {
		commit := r.head(ctx)
		since := began + "..HEAD"
		r.run(ctx, "git", "revert", "--no-edit", since)
		reverted := r.head(ctx)
		Expect(filepath.Join(r.dir, "tenants/test/acme")).NotTo(BeADirectory())
		r.run(ctx, "git", "push", "--quiet", "origin", "HEAD:main")
		r.look(ctx)
		Eventually(ready).WithContext(ctx).WithArguments("tenants-test").WithTimeout(reportTimeout).Should(And(
			HavePrefix("False"),
			ContainSubstring("Cluster acme is protected: to delete it, first remove the annotation nova-platform.io/protected"),
			ContainSubstring("Namespace acme is protected"),
		))
		report(ctx, "tenants-test")
		stays(ctx, acme, identity)

		By("reverting the revert")
		r.run(ctx, "git", "revert", "--no-edit", commit+".."+reverted)
		Expect(r.run(ctx, "git", "diff", commit)).To(BeEmpty())
		r.run(ctx, "git", "push", "--quiet", "origin", "HEAD:main")
		r.look(ctx)
		Eventually(ready).WithContext(ctx).WithArguments("tenants-test").WithTimeout(bootTimeout).Should(HavePrefix("True"))
		Expect(b.ReadyNodes(ctx, acme)).To(HaveLen(3))
		stays(ctx, acme, identity)
	})

	It("deletes nothing when all of the repository is deleted", func(ctx context.Context) {
		r.run(ctx, "git", "rm", "-r", "--quiet", ".")
		Expect(os.WriteFile(filepath.Join(r.dir, "README.md"), nil, 0o644)).To(Succeed())
		r.commit(ctx, "Delete everything")
		r.look(ctx)
		for wave, said := range map[string]string{
			"flux": "kustomization path not found", "classes": "kustomization path not found", "credentials": "kustomization path not found",
			"modules": "kustomization path not found", "tenants-test": "dependency 'flux-system/classes' is not ready",
		} {
			Eventually(message).WithContext(ctx).WithArguments(wave).WithTimeout(reportTimeout).Should(ContainSubstring(said), wave)
		}
		stays(ctx, acme, identity)
		r.run(ctx, "git", "revert", "--no-edit", "HEAD")
		r.run(ctx, "git", "push", "--quiet", "origin", "HEAD:main")
		r.look(ctx)
		Eventually(ready).WithContext(ctx).WithArguments("tenants-test").WithTimeout(reportTimeout).Should(HavePrefix("True"))
	})

	if everything {
		It("continues in another management cluster after the loss of its own", func(ctx context.Context) { loses(ctx, &r) })
		It("changes a cluster by a commit there", func(ctx context.Context) { changesAfterLoss(ctx, r) })
	}

	It("deletes clusters by two commits, and leaves no object behind", func(ctx context.Context) {
		for folder := range tenants() {
			r.edit(folder+"/kustomization.yaml", "commonAnnotations:\n  nova-platform.io/protected: \"true\"\n", "")
		}
		r.commit(ctx, "Let tenants go")
		r.look(ctx)
		for _, c := range tenants() {
			Eventually(func(g Gomega, ctx context.Context) {
				cluster := &clusterv1.Cluster{}
				g.Expect(b.Client.Get(ctx, c.Key(), cluster)).To(Succeed())
				g.Expect(cluster.Annotations).NotTo(HaveKey("nova-platform.io/protected"))
			}).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
		}
		for folder := range tenants() {
			r.run(ctx, "git", "rm", "-r", "--quiet", folder)
		}
		r.commit(ctx, "Delete tenants")
		r.look(ctx)
		for _, c := range tenants() {
			Eventually(func(ctx context.Context) bool {
				return apierrors.IsNotFound(b.Client.Get(ctx, client.ObjectKey{Name: c.Namespace}, &corev1.Namespace{}))
			}).WithContext(ctx).WithTimeout(bootTimeout).Should(BeTrue())
			Expect(b.VMsOf(ctx, c)).To(BeEmpty())
		}
		Eventually(ready).WithContext(ctx).WithArguments("tenants-test").WithTimeout(reportTimeout).Should(HavePrefix("True"))
	})
})
