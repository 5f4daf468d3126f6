package autoscaler_test

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/infrastructure"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/nodegroup"
	"github.com/nova-platform/cluster-api-provider-nova/controllers/template"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere"
	"github.com/nova-platform/cluster-api-provider-nova/providers/zvirt"
	"github.com/nova-platform/cluster-api-provider-nova/test/autoscaler"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/identity"
	"github.com/nova-platform/cluster-api-provider-nova/test/ovirtsim"
	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim"
	pve "github.com/nova-platform/cluster-api-provider-nova/test/pvesim/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// clusterName is the name of the workload cluster.
const clusterName = "demo"

// platform is a kind of hypervisor.
type platform struct {
	name, kinds, provider string
	// start starts a simulator and returns the variables of a cluster template.
	start func(ctx context.Context) (variables, credentials map[string]string)
	// setup starts the reconcilers of clusters and of machine templates.
	setup func(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
}

func platforms() []platform {
	return []platform{
		of(&vsphere.Provider, startVCenter),
		of(&zvirt.Provider, startEngine),
		of(&proxmox.Provider, startProxmox),
	}
}

// of returns the platform of a provider.
func of[C infrastructure.Cluster, M client.Object, T template.Object](p *provider.Provider[C, M, T],
	start func(ctx context.Context) (variables, credentials map[string]string)) platform {
	return platform{name: p.Name, kinds: p.Kind, provider: p.Manager(), start: start,
		setup: func(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
			connection := p.Connect(mgr.GetClient(), provider.Options{})
			if err := mgr.Add(connection); err != nil {
				return err
			}
			if err := (&cluster.Reconciler[C]{
				Inspector: connection, New: p.NewCluster, NewMachineList: p.NewMachineList, NewIdentity: p.NewIdentity,
				Identity: func(c C) (string, string) {
					ref := c.Identity()
					return ref.Kind, ref.Name
				},
			}).SetupWithManager(ctx, mgr, options); err != nil {
				return err
			}
			return (&template.Reconciler[T]{Sizer: connection, New: p.NewTemplate, InfraCluster: p.NewCluster()}).SetupWithManager(ctx, mgr, options)
		}}
}

func startVCenter(ctx context.Context) (variables, credentials map[string]string) {
	GinkgoHelper()
	s, err := vcenter.Start(ctx, vcenter.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Stop)
	return map[string]string{
		"VSPHERE_SERVER": s.Address, "VSPHERE_TLS_THUMBPRINT": s.Thumbprint, "VSPHERE_DATACENTER": "DC0",
		"VSPHERE_RESOURCE_POOL": "DC0_C0_RP1", "VSPHERE_FOLDER": vcenter.DefaultFolder, "VSPHERE_DATASTORE": "LocalDS_0",
		"VSPHERE_NETWORK": "VM Network", "VSPHERE_TEMPLATE": vcenter.DefaultTemplate,
	}, map[string]string{"username": vcenter.DefaultUsername, "password": vcenter.DefaultPassword}
}

func startEngine(ctx context.Context) (variables, credentials map[string]string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	s, err := ovirtsim.Start(ctx, ovirtsim.Options{CertDir: dir, Inventory: ovirtsim.Inventory{
		Templates: []ovirtsim.TemplateSpec{{Name: "node", DiskGiB: 20}},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Stop)
	shown, err := identity.Load(dir, nil)
	Expect(err).NotTo(HaveOccurred())
	return map[string]string{
		"ZVIRT_SERVER":    strings.TrimSuffix(strings.TrimPrefix(s.URL, "https://"), "/ovirt-engine/api"),
		"ZVIRT_CA_BUNDLE": strings.ReplaceAll(string(shown.CA), "\n", `\n`), "ZVIRT_CLUSTER": "Default", "ZVIRT_STORAGE_DOMAIN": "data1",
		"ZVIRT_VNIC_PROFILE": "ovirtmgmt/ovirtmgmt", "ZVIRT_TEMPLATE": "node",
	}, map[string]string{"username": ovirtsim.DefaultUsername, "password": ovirtsim.DefaultPassword}
}

func startProxmox(ctx context.Context) (variables, credentials map[string]string) {
	GinkgoHelper()
	s, err := pvesim.Start(ctx, pvesim.Options{Inventory: pve.Inventory{
		Storages:  []pve.StorageSpec{{ID: "shared", Type: "nfs", Content: []string{"images", "iso"}, Shared: true, SizeGiB: 10000}},
		Nodes:     []pve.NodeSpec{{Name: "pve1"}},
		Templates: []pve.TemplateSpec{{VMID: 9000, Name: "node", Node: "pve1", Storage: "shared", DiskGiB: 20}},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Stop)
	return map[string]string{
		"PROXMOX_SERVER": strings.TrimPrefix(s.URLs[0], "https://"), "PROXMOX_CA_BUNDLE": strings.ReplaceAll(s.CABundle, "\n", `\n`),
		"PROXMOX_NETWORK": "vmbr0", "PROXMOX_TEMPLATE": "node",
	}, map[string]string{"username": pvesim.DefaultToken, "password": pvesim.DefaultTokenSecret}
}

// rig is a workload cluster of a flavor in its own namespace, and an autoscaler with the
// permissions that the flavor grants. The API server also serves the workload cluster: each spec
// creates its Nodes.
type rig struct {
	client.Client

	platform  platform
	namespace string
	driver    *autoscaler.Driver
}

func newRig(ctx context.Context, p platform) *rig {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "autoscaler-"}}
	Expect(apiServer.Client.Create(ctx, namespace)).To(Succeed())
	r := &rig{Client: apiServer.Client, platform: p, namespace: namespace.Name}
	variables, credentials := p.start(ctx)
	secret := &corev1.Secret{StringData: credentials}
	secret.Namespace, secret.Name = r.namespace, p.name+"-credentials"
	Expect(r.Create(ctx, secret)).To(Succeed())
	maps.Copy(variables, map[string]string{
		"CLUSTER_NAME": clusterName, "NAMESPACE": r.namespace, "KUBERNETES_VERSION": "v1.36.3",
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "0", "CONTROL_PLANE_ENDPOINT_HOST": "192.0.2.10",
		"WORKER_MACHINE_MIN_COUNT": "0", "WORKER_MACHINE_MAX_COUNT": "3",
	})
	r.run()
	manifest, err := autoscaler.Flavor(ctx, GinkgoWriter, repository, p.provider, variables)
	Expect(err).NotTo(HaveOccurred())
	r.apply(ctx, manifest)
	r.driver, err = autoscaler.New(ctx, autoscaler.As(apiServer.Config, r.namespace, clusterName+"-autoscaler"), r.namespace, clusterName)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(r.driver.Close)
	return r
}

// run starts a manager with the reconcilers that the autoscaler depends on.
func (r *rig) run() {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(apiServer.Config, ctrl.Options{
		Scheme:  apiServer.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{r.namespace: {}}},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	options := controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 2}
	Expect(r.platform.setup(ctx, mgr, options)).To(Succeed())
	Expect((&nodegroup.Reconciler{}).SetupWithManager(ctx, mgr, options)).To(Succeed())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(stopped).Should(Receive(BeNil()))
	})
}

// apply creates the objects that clusterctl generated, and adds the values that Cluster API's
// webhooks and reconcilers would add: labels, owners and the initial number of replicas.
func (r *rig) apply(ctx context.Context, manifest []byte) {
	GinkgoHelper()
	objects, err := bed.Suit(manifest, bed.Cluster{})
	Expect(err).NotTo(HaveOccurred())
	owner := &clusterv1.Cluster{}
	for _, o := range objects {
		switch o.GetKind() {
		case "MachineDeployment":
			o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: clusterName})
			name := map[string]any{clusterv1.MachineDeploymentNameLabel: o.GetName()}
			Expect(unstructured.SetNestedMap(o.Object, name, "spec", "selector", "matchLabels")).To(Succeed())
			Expect(unstructured.SetNestedMap(o.Object, name, "spec", "template", "metadata", "labels")).To(Succeed())
			Expect(unstructured.SetNestedField(o.Object, int64(0), "spec", "replicas")).To(Succeed())
		case r.platform.kinds + "Cluster":
			o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: clusterName})
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, clusterv1.GroupVersion.WithKind("Cluster"))})
		}
		Expect(r.Create(ctx, o)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
		if o.GetKind() == "Cluster" {
			Expect(r.Get(ctx, client.ObjectKeyFromObject(o), owner)).To(Succeed())
		}
	}
}

// group waits for the node group of a MachineDeployment.
func (r *rig) group(ctx context.Context, name string) *autoscaler.Group {
	GinkgoHelper()
	var group *autoscaler.Group
	Eventually(func(g Gomega) {
		groups, err := r.driver.Groups(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		group = nil
		for _, found := range groups {
			if found.ID() == "MachineDeployment/"+r.namespace+"/"+name {
				group = found
			}
		}
		g.Expect(group).NotTo(BeNil())
	}).Should(Succeed())
	return group
}

// ids are the IDs of all groups.
func (r *rig) ids(ctx context.Context) func() ([]string, error) {
	return func() ([]string, error) {
		groups, err := r.driver.Groups(ctx)
		var ids []string
		for _, g := range groups {
			ids = append(ids, g.ID())
		}
		return ids, err
	}
}

// deployment reads a MachineDeployment.
func (r *rig) deployment(ctx context.Context, name string) *clusterv1.MachineDeployment {
	GinkgoHelper()
	d := &clusterv1.MachineDeployment{}
	Expect(r.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, d)).To(Succeed())
	return d
}

// change patches a MachineDeployment.
func (r *rig) change(ctx context.Context, name string, change func(*clusterv1.MachineDeployment)) {
	GinkgoHelper()
	d := r.deployment(ctx, name)
	before := d.DeepCopy()
	change(d)
	Expect(r.Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
}

// pool adds a MachineDeployment like that of the workers, with templates of
// its own.
func (r *rig) pool(ctx context.Context, name string, spec bootstrapv1.NovaConfigSpec, change func(infra *unstructured.Unstructured)) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: r.namespace, Name: name}
	Expect(r.Create(ctx, &bootstrapv1.NovaConfigTemplate{ObjectMeta: meta, Spec: bootstrapv1.NovaConfigTemplateSpec{
		Template: bootstrapv1.NovaConfigTemplateResource{Spec: spec},
	}})).To(Succeed())
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(infrav1.GroupVersion.WithKind(r.platform.kinds + "MachineTemplate"))
	Expect(r.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: clusterName + "-worker"}, infra)).To(Succeed())
	own := &unstructured.Unstructured{Object: map[string]any{"spec": infra.Object["spec"]}}
	own.SetGroupVersionKind(infra.GroupVersionKind())
	own.SetNamespace(r.namespace)
	own.SetName(name)
	change(own)
	Expect(r.Create(ctx, own)).To(Succeed())
	d := r.deployment(ctx, clusterName+"-worker")
	more := &clusterv1.MachineDeployment{ObjectMeta: meta, Spec: d.Spec}
	more.Labels = d.Labels
	more.Annotations = map[string]string{clusterv1.AutoscalerMinSizeAnnotation: "0", clusterv1.AutoscalerMaxSizeAnnotation: "2"}
	more.Spec.Selector.MatchLabels = map[string]string{clusterv1.MachineDeploymentNameLabel: name}
	more.Spec.Template.Labels = more.Spec.Selector.MatchLabels
	more.Spec.Template.Spec.Bootstrap.ConfigRef.Name, more.Spec.Template.Spec.InfrastructureRef.Name = name, name
	Expect(r.Create(ctx, more)).To(Succeed())
}
