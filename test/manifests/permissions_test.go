package manifests

import (
	"bytes"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// policyTimeout is how long the API server may take to notice new rules.
const policyTimeout = 30 * time.Second

const (
	bootstrapGroup    = "bootstrap.cluster.x-k8s.io"
	clusterGroup      = "cluster.x-k8s.io"
	controlPlaneGroup = "controlplane.cluster.x-k8s.io"
	ipamGroup         = "ipam.cluster.x-k8s.io"
	infraGroup        = "infrastructure.cluster.x-k8s.io"
)

// permission is something that the manager in dir may or may not do.
type permission struct {
	dir, verb, group, resource, subresource string
}

func allowed(ctx SpecContext, p permission, namespace string) bool {
	var user string
	for _, provider := range Providers() {
		if provider.Dir == p.dir {
			user = provider.ServiceAccount()
		}
	}
	Expect(user).NotTo(BeEmpty())
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource,
		},
	}}
	Expect(server.Client.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

var _ = Describe("a manager", Ordered, func() {
	// The controller that sums up aggregated roles is not in this API server,
	// so the rules that it would find are bound directly.
	BeforeAll(func(ctx SpecContext) {
		for _, p := range Providers() {
			for _, o := range ofKind(p, "ClusterRole") {
				var role rbacv1.ClusterRole
				Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role)).To(Succeed())
				if role.AggregationRule != nil {
					bindAggregated(ctx, p, role.AggregationRule)
				}
			}
		}
	})

	DescribeTable("may", func(ctx SpecContext, p permission) {
		Eventually(func() bool { return allowed(ctx, p, "tenants") }).WithTimeout(policyTimeout).Should(BeTrue())
	},
		Entry("read a vCenter's credentials", permission{dir: "nova-vsphere", verb: "get", resource: "secrets"}),
		Entry("publish a machine's address", permission{"nova-vsphere", "patch", infraGroup, "novavspheremachines", "status"}),
		Entry("hold a finalizer on a machine", permission{dir: "nova-vsphere", verb: "patch", group: infraGroup, resource: "novavspheremachines"}),
		Entry("say in an event what went wrong", permission{dir: "nova-vsphere", verb: "create", group: "events.k8s.io", resource: "events"}),
		Entry("check who reads its metrics", permission{dir: "nova-vsphere", verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"}),
		Entry("hold a finalizer on a vCenter's credentials", permission{dir: "nova-vsphere", verb: "patch", resource: "secrets"}),
		Entry("read an engine's credentials", permission{dir: "nova-zvirt", verb: "get", resource: "secrets"}),
		Entry("read who may use an account", permission{dir: "nova-zvirt", verb: "watch", group: infraGroup, resource: "novazvirtidentities"}),
		Entry("read the labels of the namespaces that may", permission{dir: "nova-zvirt", verb: "watch", resource: "namespaces"}),
		Entry("publish a machine's address", permission{"nova-zvirt", "patch", infraGroup, "novazvirtmachines", "status"}),
		Entry("hold a finalizer on a machine", permission{dir: "nova-zvirt", verb: "patch", group: infraGroup, resource: "novazvirtmachines"}),
		Entry("say how large machines will be", permission{"nova-zvirt", "patch", infraGroup, "novazvirtmachinetemplates", "status"}),
		Entry("put the host on a Machine", permission{dir: "nova-zvirt", verb: "patch", group: clusterGroup, resource: "machines"}),
		Entry("ask for an address", permission{dir: "nova-zvirt", verb: "create", group: ipamGroup, resource: "ipaddressclaims"}),
		Entry("give an address back", permission{dir: "nova-zvirt", verb: "delete", group: ipamGroup, resource: "ipaddressclaims"}),
		Entry("read the address it got", permission{dir: "nova-zvirt", verb: "get", group: ipamGroup, resource: "ipaddresses"}),
		Entry("write bootstrap data", permission{dir: "nova-bootstrap", verb: "create", resource: "secrets"}),
		Entry("take the lock of kubeadm init", permission{dir: "nova-bootstrap", verb: "create", resource: "configmaps"}),
		Entry("put a node's roles on its Machine", permission{dir: "nova-bootstrap", verb: "patch", group: clusterGroup, resource: "machines"}),
		Entry("tell cluster-autoscaler of labels and taints", permission{dir: "nova-bootstrap", verb: "patch", group: clusterGroup, resource: "machinedeployments"}),
		Entry("let workers boot early", permission{dir: "nova-bootstrap", verb: "patch", group: bootstrapGroup, resource: "novaconfigtemplates"}),
		Entry("own bootstrap data", permission{"nova-bootstrap", "update", bootstrapGroup, "novaconfigs", "finalizers"}),
		Entry("read the platform settings", permission{dir: "nova-bootstrap", verb: "get", group: controlPlaneGroup, resource: "novacontrolplanes"}),
		Entry("read whose snapshot a machine restores", permission{dir: "nova-bootstrap", verb: "get", group: controlPlaneGroup, resource: "novaetcdrestores"}),
		Entry("make machines", permission{dir: "nova-control-plane", verb: "create", group: clusterGroup, resource: "machines"}),
		Entry("make infrastructure of any provider", permission{dir: "nova-control-plane", verb: "create", group: infraGroup, resource: "dockermachines"}),
		Entry("own machines", permission{"nova-control-plane", "update", controlPlaneGroup, "novacontrolplanes", "finalizers"}),
		Entry("find out which contract a kind keeps", permission{dir: "nova-control-plane", verb: "get", group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}),
	)

	DescribeTable("may not", func(ctx SpecContext, p permission) {
		Expect(allowed(ctx, p, "tenants")).To(BeFalse())
	},
		Entry("change a vCenter's credentials", permission{dir: "nova-vsphere", verb: "update", resource: "secrets"}),
		Entry("delete clusters", permission{dir: "nova-vsphere", verb: "delete", group: clusterGroup, resource: "clusters"}),
		Entry("make machines that nobody asked for", permission{dir: "nova-vsphere", verb: "create", group: clusterGroup, resource: "machines"}),
		Entry("change an engine's credentials", permission{dir: "nova-zvirt", verb: "update", resource: "secrets"}),
		Entry("touch machines of another hypervisor", permission{dir: "nova-zvirt", verb: "get", group: infraGroup, resource: "novavspheremachines"}),
		Entry("lend accounts", permission{dir: "nova-zvirt", verb: "patch", group: infraGroup, resource: "novazvirtidentities"}),
		Entry("change what machines are made from", permission{dir: "nova-zvirt", verb: "patch", group: infraGroup, resource: "novazvirtmachinetemplates"}),
		Entry("delete machines", permission{dir: "nova-zvirt", verb: "delete", group: clusterGroup, resource: "machines"}),
		Entry("delete what it has written", permission{dir: "nova-bootstrap", verb: "delete", resource: "secrets"}),
		Entry("scale workers", permission{"nova-bootstrap", "patch", clusterGroup, "machinedeployments", "scale"}),
		Entry("touch infrastructure while it renders", permission{dir: "nova-bootstrap", verb: "get", group: infraGroup, resource: "novavspheremachines"}),
		Entry("delete clusters", permission{dir: "nova-control-plane", verb: "delete", group: clusterGroup, resource: "clusters"}),
		Entry("give itself more rights", permission{dir: "nova-control-plane", verb: "update", group: rbacv1.GroupName, resource: "clusterroles"}),
		Entry("take the lease of others", permission{dir: "nova-vsphere", verb: "update", group: "coordination.k8s.io", resource: "leases"}),
	)

	// One set of reconcilers serves every hypervisor, so what one of their
	// managers lacks it lacks by mistake.
	It("may do the same as that of the other hypervisor", func() {
		rules := func(dir, kinds string) []rbacv1.PolicyRule {
			for _, p := range Providers() {
				for _, o := range ofKind(p, "ClusterRole") {
					if o.GetName() != dir+"-manager" {
						continue
					}
					text, err := o.MarshalJSON()
					Expect(err).NotTo(HaveOccurred())
					var role rbacv1.ClusterRole
					Expect(json.Unmarshal(bytes.ReplaceAll(text, []byte(kinds), []byte("nova")), &role)).To(Succeed())
					return role.Rules
				}
			}
			return nil
		}
		vsphere := rules("nova-vsphere", "novavsphere")
		Expect(vsphere).NotTo(BeEmpty())
		Expect(rules("nova-zvirt", "novazvirt")).To(Equal(vsphere))
	})

	It("may hold its lease in its own namespace", func(ctx SpecContext) {
		for _, p := range Providers() {
			lease := permission{dir: p.Dir, verb: "update", group: "coordination.k8s.io", resource: "leases"}
			Eventually(func() bool { return allowed(ctx, lease, p.Namespace()) }).WithTimeout(policyTimeout).Should(BeTrue(), p.Dir)
		}
	})
})

// bindAggregated binds the roles of p that rule selects to p's manager.
func bindAggregated(ctx SpecContext, p Provider, rule *rbacv1.AggregationRule) {
	bound := 0
	for _, selector := range rule.ClusterRoleSelectors {
		for _, o := range ofKind(p, "ClusterRole") {
			if !selects(selector, o) {
				continue
			}
			bound++
			Expect(server.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "aggregated-"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: o.GetName()},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: p.ServiceAccount()}},
			})).To(Succeed())
		}
	}
	Expect(bound).To(BeNumerically(">", 0), "nothing in %s has the label that its role sums up", p.Dir)
}

func selects(selector metav1.LabelSelector, o *unstructured.Unstructured) bool {
	for key, value := range selector.MatchLabels {
		if o.GetLabels()[key] != value {
			return false
		}
	}
	return true
}
