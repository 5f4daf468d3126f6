package hostile

import (
	"context"
	"maps"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// Names and bounds of the shared identities.
const (
	sharedIdentity = "shared"
	sharedSecret   = "shared-credentials"
	allowedPool    = "/DC0/host/DC0_C0/Resources/DC0_C0_RP1"
	otherTemplate  = "another-teams-template"
)

// kinds are the prefixes of the kinds of all hypervisors.
func kinds() (prefixes []string) {
	for _, name := range bed.Hypervisors() {
		facts, err := bed.FactsOf(name)
		if err != nil {
			panic(err) // the tree of specs is being built
		}
		prefixes = append(prefixes, facts.Kinds)
	}
	return prefixes
}

// on returns the hypervisor of a kind.
func on(kind string) bed.Hypervisor {
	GinkgoHelper()
	h, err := b.Hypervisor(strings.ToLower(strings.TrimPrefix(kind, "Nova")))
	Expect(err).NotTo(HaveOccurred())
	return h
}

// addressOf returns the fields of a cluster or identity that select the server of a
// hypervisor.
func addressOf(ctx context.Context, kind string) map[string]any {
	GinkgoHelper()
	h := on(kind)
	v, err := b.Variables(ctx, bed.Cluster{Hypervisor: h.Facts().Name})
	Expect(err).NotTo(HaveOccurred())
	prefix := strings.ToUpper(h.Facts().Name)
	tls := map[string]any{"caBundle": strings.ReplaceAll(v[prefix+"_CA_BUNDLE"], `\n`, "\n")}
	if thumbprint := v[prefix+"_TLS_THUMBPRINT"]; thumbprint != "" {
		tls = map[string]any{"thumbprint": thumbprint}
	}
	return map[string]any{"server": v[prefix+"_SERVER"], "tls": tls}
}

// shareIdentities makes an identity for each hypervisor, with narrow bounds,
// that the clusters of a namespace may use.
func shareIdentities(ctx context.Context, namespace string) {
	GinkgoHelper()
	bounds := map[string]map[string]any{
		"NovaVSphere": {
			"folders": []any{"/DC0/vm/" + vcenter.DefaultFolder}, "resourcePools": []any{allowedPool}, "networks": []any{"VM Network"},
			"datastores": []any{"LocalDS_0"}, "templates": []any{vcenter.DefaultTemplate},
		},
		"NovaZVirt":   {"computeClusters": []any{"Default"}},
		"NovaProxmox": {"pools": []any{"red"}},
	}
	for _, kind := range kinds() {
		h, spec := on(kind), addressOf(ctx, kind)
		Expect(bounds).To(HaveKey(kind))
		spec["bounds"] = bounds[kind]
		credentials, err := h.Credentials()
		Expect(err).NotTo(HaveOccurred())
		s := &corev1.Secret{StringData: credentials}
		s.Namespace, s.Name = h.Facts().Provider+"-system", sharedSecret
		Expect(b.Client.Create(ctx, s)).To(Succeed())
		spec["credentialsSecretRef"] = map[string]any{"name": sharedSecret}
		spec["allowedNamespaces"] = map[string]any{"list": []any{namespace}}
		Expect(b.Client.Create(ctx, object(infraV, kind+"Identity", "", sharedIdentity, spec))).To(Succeed())
	}
}

// infraCluster returns an infrastructure cluster with a shared identity; more
// replaces fields of its spec.
func infraCluster(kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
	spec := map[string]any{
		"identityRef":          map[string]any{"kind": kind + "Identity", "name": sharedIdentity},
		"controlPlaneEndpoint": map[string]any{"host": "192.0.2.1", "port": int64(6443)},
	}
	maps.Copy(spec, more)
	return object(infraV, kind+"Cluster", namespace, name, spec)
}

// clusterOf makes the Cluster that an infrastructure cluster belongs to.
func clusterOf(ctx context.Context, as client.Client, infra *unstructured.Unstructured) {
	GinkgoHelper()
	Expect(as.Create(ctx, infra)).To(Succeed())
	Expect(as.Create(ctx, object(coreV, "Cluster", infra.GetNamespace(), infra.GetName(), map[string]any{
		"infrastructureRef": reference(infraV, infra.GetKind(), infra.GetName()),
	}))).To(Succeed())
}

// machineWith makes a Machine whose bootstrap data is there, with the spec of
// its infrastructure machine.
func machineWith(ctx context.Context, as client.Client, kind, namespace, cluster, name string, spec map[string]any) *unstructured.Unstructured {
	GinkgoHelper()
	s := &corev1.Secret{Data: map[string][]byte{"value": []byte("#cloud-config\n")}}
	s.Namespace, s.Name = namespace, name+"-data"
	infra := object(infraV, kind+"Machine", namespace, name, spec)
	machine := object(coreV, "Machine", namespace, name, map[string]any{
		"clusterName": cluster, "bootstrap": map[string]any{"dataSecretName": s.Name},
		"infrastructureRef": reference(infraV, kind+"Machine", name),
	})
	for _, o := range []client.Object{infra, machine} {
		o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
	}
	for _, o := range []client.Object{s, infra, machine} {
		Expect(as.Create(ctx, o)).To(Succeed())
	}
	return infra
}

// calls counts how often a method of vCenter was called.
func calls(ctx context.Context, method string) (int, error) {
	counts, err := b.Control().Requests(ctx)
	return counts.Methods[method], err
}

func rejected(err error) {
	GinkgoHelper()
	Expect(err).To(HaveOccurred())
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), err.Error())
}

var _ = Describe("The identity of an administrator", Ordered, ContinueOnFailure, func() {
	const namespace = "red-identities"
	var (
		user   client.Client
		server *evil
	)

	BeforeAll(func(ctx context.Context) {
		user, server = tenantUser(ctx, namespace), listen(ctx, nil)
		shareIdentities(ctx, namespace)
		copyTemplate(ctx)
		clusterOf(ctx, user, infraCluster("NovaVSphere", namespace, "red", map[string]any{"placement": map[string]any{
			"datacenter": "DC0", "resourcePool": allowedPool, "folder": vcenter.DefaultFolder, "datastore": "LocalDS_0",
		}}))
		By("creating a VM within the bounds")
		machineWith(ctx, user, "NovaVSphere", namespace, "red", "red-honest", honestMachine(nil))
		Eventually(running).WithContext(ctx).WithArguments(bed.Cluster{Name: "red"}).Should(HaveKey("red-honest"))
	})

	for _, kind := range kinds() {
		It("is sent to no other server by a "+kind+"Cluster [F2]", func(ctx context.Context) {
			rejected(user.Create(ctx, infraCluster(kind, namespace, "server", map[string]any{"server": server.Address})))
			Expect(server.Connections()).To(BeEmpty())
		})

		It("is sent to no other server by a "+kind+"Cluster that had a Secret before [F2]", func(ctx context.Context) {
			name := strings.ToLower(kind) + "-before"
			before := infraCluster(kind, namespace, name, map[string]any{
				"server": server.Address, "identityRef": map[string]any{"kind": "Secret", "name": "none"},
			})
			Expect(user.Create(ctx, before)).To(Succeed())
			after := before.DeepCopy()
			Expect(unstructured.SetNestedMap(after.Object, map[string]any{"kind": kind + "Identity", "name": sharedIdentity}, "spec", "identityRef")).To(Succeed())
			rejected(user.Update(ctx, after))
			Expect(server.Connections()).To(BeEmpty())
		})

		It("is not used by a "+kind+"Cluster without verifying the server [F2, F44]", func(ctx context.Context) {
			rejected(user.Create(ctx, infraCluster(kind, namespace, "insecure", map[string]any{"tls": map[string]any{"insecureSkipVerify": true}})))
		})

		It("is not used by a "+kind+"Cluster of a namespace that it does not allow [F2]", func(ctx context.Context) {
			other := namespace + "-" + on(kind).Facts().Name
			infra := infraCluster(kind, other, "red", nil)
			clusterOf(ctx, tenantUser(ctx, other), infra)
			Eventually(conditionsOf(infra)).WithContext(ctx).Should(MatchRegexp(`Ready=False \w+: .*namespace`))
		})
	}

	for _, kind := range kinds() {
		It("is not written by a user of a namespace with a "+kind+"Identity [F2]", func(ctx context.Context) {
			forbidden := func(err error) {
				GinkgoHelper()
				Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			}
			shared := object(infraV, kind+"Identity", "", sharedIdentity, nil)
			Expect(b.Client.Get(ctx, client.ObjectKeyFromObject(shared), shared)).To(Succeed())
			changed := shared.DeepCopy()
			Expect(unstructured.SetNestedField(changed.Object, server.Address, "spec", "server")).To(Succeed())
			forbidden(user.Update(ctx, changed))
			forbidden(user.Patch(ctx, changed, client.MergeFrom(shared)))
			forbidden(user.Create(ctx, object(infraV, kind+"Identity", "", "own", shared.Object["spec"].(map[string]any))))
		})
	}

	// outside expects that a machine gets no VM, and that nothing was cloned.
	outside := func(ctx context.Context, name string, change map[string]any) {
		GinkgoHelper()
		before, err := calls(ctx, "CloneVM_Task")
		Expect(err).NotTo(HaveOccurred())
		infra := machineWith(ctx, user, "NovaVSphere", namespace, "red", name, honestMachine(change))
		Eventually(conditionsOf(infra)).WithContext(ctx).Should(ContainSubstring("OutOfBounds"))
		Expect(calls(ctx, "CloneVM_Task")).To(Equal(before))
		Expect(b.Control().VMs(ctx)).NotTo(ContainElement(HaveField("Name", name)))
	}

	It("makes no VM in another folder [F6]", func(ctx context.Context) {
		outside(ctx, "red-folder", map[string]any{"placement": map[string]any{"folder": "/DC0/vm"}})
	})
	It("makes no VM in another pool [F6]", func(ctx context.Context) {
		outside(ctx, "red-pool", map[string]any{"placement": map[string]any{"resourcePool": "/DC0/host/DC0_C0/Resources"}})
	})
	It("makes no VM on another datastore [F6]", func(ctx context.Context) {
		outside(ctx, "red-datastore", map[string]any{"placement": map[string]any{"datastore": "LocalDS_1"}})
	})
	It("makes no VM on another network [F6]", func(ctx context.Context) {
		outside(ctx, "red-network", map[string]any{"network": map[string]any{"interfaces": []any{map[string]any{"network": "DC0_DVPG0"}}}})
	})
	It("makes no VM of another template [F6]", func(ctx context.Context) {
		outside(ctx, "red-template", map[string]any{"template": map[string]any{"name": otherTemplate}})
	})

	It("clones no VM of another tenant by its name [F6]", func(ctx context.Context) {
		outside(ctx, "red-vm-name", map[string]any{"template": map[string]any{"name": machine(ctx, blue, true).Name}})
	})
	It("clones no VM of another tenant by its UUID [F6]", func(ctx context.Context) {
		vms, err := running(ctx, blue)
		Expect(err).NotTo(HaveOccurred())
		outside(ctx, "red-vm-uuid", map[string]any{"template": map[string]any{"id": vms[machine(ctx, blue, true).Name].InstanceUUID}})
	})
	It("clones no VM of another tenant by its managed object reference [F6]", func(ctx context.Context) {
		vms, err := running(ctx, blue)
		Expect(err).NotTo(HaveOccurred())
		outside(ctx, "red-vm-reference", map[string]any{"template": map[string]any{"id": vms[machine(ctx, blue, true).Name].Ref}})
	})
})

// honestMachine is the spec of a machine within bounds, with changes; nil takes
// a field out.
func honestMachine(change map[string]any) map[string]any {
	spec := map[string]any{
		"template": map[string]any{"name": vcenter.DefaultTemplate},
		"network":  map[string]any{"interfaces": []any{map[string]any{"network": "VM Network"}}},
	}
	for field, value := range change {
		spec[field] = value
		if value == nil {
			delete(spec, field)
		}
	}
	return spec
}

// copyTemplate makes a template that is not within bounds.
func copyTemplate(ctx context.Context) {
	GinkgoHelper()
	vim, err := b.Vim(ctx)
	Expect(err).NotTo(HaveOccurred())
	template, err := bed.FindVM(ctx, vim, vcenter.DefaultTemplate)
	Expect(err).NotTo(HaveOccurred())
	finder := find.NewFinder(vim.Client)
	folder, err := finder.Folder(ctx, "/DC0/vm")
	Expect(err).NotTo(HaveOccurred())
	pool, err := finder.ResourcePool(ctx, allowedPool)
	Expect(err).NotTo(HaveOccurred())
	task, err := template.Clone(ctx, folder, otherTemplate, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: ptr.To(pool.Reference())}, Template: true,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(task.Wait(ctx)).To(Succeed())
	Expect(vim.Logout(ctx)).To(Succeed())
}

var _ = Describe("Wrong passwords of a tenant", Ordered, ContinueOnFailure, func() {
	// vCenter locks a user after five, and directories behind engines and Proxmox VE do the same.
	const namespace, lockedAfter = "red-passwords", 5
	logins := func(ctx context.Context, kind string) (n int, err error) {
		counts, err := on(kind).Requests(ctx)
		for request, count := range counts {
			if request == "Login" || strings.HasPrefix(request, "POST /") && (strings.HasSuffix(request, "/token") || strings.HasSuffix(request, "/ticket")) {
				n += count
			}
		}
		return n, err
	}
	clusters := map[string][]*unstructured.Unstructured{}

	BeforeAll(func(ctx context.Context) {
		user := tenantUser(ctx, namespace)
		withdraw(namespace)
		for _, kind := range kinds() {
			Expect(on(kind).ResetRequests(ctx)).To(Succeed())
			credentials, err := on(kind).Credentials()
			Expect(err).NotTo(HaveOccurred())
			for i := range 10 {
				name := strings.ToLower(kind) + "-" + string(rune('a'+i))
				s := &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
					StringData: map[string]string{"username": credentials["username"], "password": "guess-" + string(rune('a'+i))},
				}
				Expect(user.Create(ctx, s)).To(Succeed())
				spec := addressOf(ctx, kind)
				spec["identityRef"] = map[string]any{"kind": "Secret", "name": name}
				infra := infraCluster(kind, namespace, name, spec)
				clusterOf(ctx, user, infra)
				clusters[kind] = append(clusters[kind], infra)
			}
		}
	})

	for _, kind := range kinds() {
		It("do not lock an account that others use with "+kind+" [F9]", func(ctx context.Context) {
			for _, infra := range clusters[kind] {
				Eventually(conditionsOf(infra)).WithContext(ctx).Should(ContainSubstring("CredentialsInvalid"))
			}
			Expect(logins(ctx, kind)).To(And(BeNumerically(">", 0), BeNumerically("<", lockedAfter)))
		})
	}
})

// trusted is a ConfigMap with the certificates of a tenant's buckets.
const trusted = "trusted"

func trust(ctx context.Context, as client.Client, namespace string, servers ...*evil) {
	GinkgoHelper()
	var all []byte
	for _, server := range servers {
		all = append(all, server.CA...)
	}
	Expect(as.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: trusted}, Data: map[string]string{"ca.crt": string(all)},
	})).To(Succeed())
}

// bucketRestore is a restore of a control plane from a bucket of the tenant.
func bucketRestore(namespace, name string, server *evil) *unstructured.Unstructured {
	return object(planeV, "NovaEtcdRestore", namespace, name, map[string]any{
		"controlPlaneRef": map[string]any{"name": name},
		"source":          map[string]any{"snapshot": map[string]any{"name": "Latest"}},
		"s3": map[string]any{
			"endpoint": server.URL, "bucket": "bucket", "credentialsSecretRef": map[string]any{"name": "own"},
			"trustedCAFrom": map[string]any{"configMap": map[string]any{"name": trusted, "key": "ca.crt"}},
		},
	})
}

var _ = Describe("An address that only the management cluster reaches", Ordered, ContinueOnFailure, func() {
	const namespace = "red-internal"
	// metadata is where clouds serve credentials.
	const metadata = "169.254.169.254"
	spellings := []string{"127.0.0.1", "[::ffff:127.0.0.1]", "localhost"}
	// spelled is the name of the cluster of a kind whose server has a spelling.
	spelled := func(kind string, i int) string { return strings.ToLower(kind) + string(rune('a'+i)) }
	var (
		user            client.Client
		internal, cloud *evil
	)

	BeforeAll(func(ctx context.Context) {
		user = tenantUser(ctx, namespace)
		serve := func(address string) *evil {
			e := &evil{}
			e.serve(ctx, address+":0", selfSigned(e, address), nil)
			return e
		}
		internal = serve("127.0.0.1")
		Expect(b.Inside(exec.CommandContext(ctx, "ip", "address", "replace", metadata+"/32", "dev", "lo").Run)).To(Succeed())
		cloud = serve(metadata)
		withdraw(namespace)
		Expect(user.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, StringData: map[string]string{
				"username": "own@internal", "password": "own", "accessKeyID": "own", "secretAccessKey": "own",
			},
		})).To(Succeed())
		trust(ctx, user, namespace, internal, cloud)
		_, port, _ := strings.Cut(internal.Address, ":")
		for _, kind := range kinds() {
			for i, spelling := range spellings {
				clusterOf(ctx, user, infraCluster(kind, namespace, spelled(kind, i), map[string]any{
					"server": spelling + ":" + port, "tls": map[string]any{"caBundle": string(internal.CA)},
					"identityRef": map[string]any{"kind": "Secret", "name": "own"},
				}))
			}
		}
	})

	for _, kind := range kinds() {
		for i, spelling := range spellings {
			It("is not reached as the server "+spelling+" of a "+kind+"Cluster [F8]", func(ctx context.Context) {
				infra := object(infraV, kind+"Cluster", namespace, spelled(kind, i), nil)
				Eventually(conditionsOf(infra)).WithContext(ctx).Should(ContainSubstring(endpoints.ErrDenied.Error()))
				Expect(internal.Connections()).To(BeEmpty())
			})
		}
	}

	// at returns the server of an address.
	at := func(address string) *evil {
		if address == metadata {
			return cloud
		}
		return internal
	}
	for i, address := range []string{"127.0.0.1", metadata} {
		It("is not reached as the bucket "+address+" of a tenant [F8]", func(ctx context.Context) {
			name := "bucket-" + string(rune('a'+i))
			bareCluster(ctx, user, namespace, name, "192.0.2.1:6443")
			restore := bucketRestore(namespace, name, at(address))
			Expect(user.Create(ctx, restore)).To(Succeed())
			Eventually(conditionsOf(restore)).WithContext(ctx).Should(ContainSubstring(endpoints.ErrDenied.Error()))
			Expect(at(address).Connections()).To(BeEmpty())
		})

		for kind, source := range map[string]map[string]any{"git": nil, "oci": nil, "helm": nil} {
			It("is not reached as the "+kind+" repository "+address+" of a tenant's modules [F8]", func(ctx context.Context) {
				source = map[string]any{"url": map[string]string{"git": "https://", "oci": "oci://", "helm": "https://"}[kind] + at(address).Address + "/x"}
				set := moduleSet(namespace, "repository-"+kind+"-"+string(rune('a'+i)), nil)
				Expect(unstructured.SetNestedSlice(set.Object, []any{map[string]any{"name": "release", kind: source}}, "spec", "sources")).To(Succeed())
				if kind == "helm" {
					unstructured.RemoveNestedField(set.Object, "spec", "release")
					Expect(unstructured.SetNestedSlice(set.Object, []any{map[string]any{"name": "evil", "chart": map[string]any{"name": "x", "version": "1.0.0"}}}, "spec", "modules")).To(Succeed())
				}
				Expect(user.Create(ctx, set)).To(Succeed())
				Eventually(conditionsOf(set)).WithContext(ctx).Should(ContainSubstring(endpoints.ErrDenied.Error()))
				Expect(at(address).Connections()).To(BeEmpty())
			})
		}
	}

	for _, kind := range kinds() {
		It("is not reached as the server "+metadata+" of a "+kind+"Cluster [F8]", func(ctx context.Context) {
			infra := ownServer(ctx, user, kind, namespace, strings.ToLower(kind)+"-metadata", cloud)
			Eventually(conditionsOf(infra)).WithContext(ctx).Should(ContainSubstring(endpoints.ErrDenied.Error()))
			Expect(cloud.Connections()).To(BeEmpty())
		})
	}

	It("is not reached as the endpoint of a Cluster [F8]", func(ctx context.Context) {
		plane := bareCluster(ctx, user, namespace, "endpoint", internal.Address)
		Eventually(conditionsOf(plane)).WithContext(ctx).Should(ContainSubstring("=False"))
		Expect(internal.Connections()).To(BeEmpty())
	})
})
