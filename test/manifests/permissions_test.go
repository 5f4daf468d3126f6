package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
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
	clusterGroup      = "cluster.x-k8s.io"
	controlPlaneGroup = "controlplane.cluster.x-k8s.io"
	infraGroup        = "infrastructure.cluster.x-k8s.io"
)

// permissions are those of each manager in the namespaces of clusters: verbs by
// resource. A resource is written as the API server does, "pods/exec" or
// "leases.coordination.k8s.io", with the name of an object if only that one is
// meant.
var permissions = map[string]map[string]string{
	"nova-vsphere": infraPermissions("novavsphere"),
	"nova-proxmox": infraPermissions("novaproxmox"),
	"nova-zvirt":   infraPermissions("novazvirt"),
	"nova-bootstrap": {
		"*.infrastructure.cluster.x-k8s.io": "get list",
		"events":                            "create patch", "events.events.k8s.io": "create patch",
		// Policies bound these writes.
		"secrets": "get list watch create update", "configmaps": "get list watch create update",
		"namespaces": "get list watch", "novastarvaultidentities.controlplane.cluster.x-k8s.io": "get list watch",
		"clusters.cluster.x-k8s.io": "get list watch", "machinesets.cluster.x-k8s.io": "get list watch",
		"machinepools.cluster.x-k8s.io": "get list watch", "machinedrainrules.cluster.x-k8s.io": "get list watch",
		"machines.cluster.x-k8s.io": "get list watch patch", "machinedeployments.cluster.x-k8s.io": "get list watch patch",
		"machines.cluster.x-k8s.io/status":                      "patch",
		"novaconfigs.bootstrap.cluster.x-k8s.io":                "get list watch patch",
		"novaconfigs.bootstrap.cluster.x-k8s.io/status":         "patch",
		"novaconfigs.bootstrap.cluster.x-k8s.io/finalizers":     "update",
		"novaconfigtemplates.bootstrap.cluster.x-k8s.io":        "get list watch patch",
		"novaconfigtemplates.bootstrap.cluster.x-k8s.io/status": "patch",
		"novacontrolplanes.controlplane.cluster.x-k8s.io":       "get list watch",
		"novaetcdrestores.controlplane.cluster.x-k8s.io":        "get",
	},
	"nova-control-plane": {
		"events": "create patch", "events.events.k8s.io": "create patch",
		// Policies bound these writes.
		"secrets": "get list watch create update delete", "configmaps": "get create update",
		"namespaces": "get list watch", "novastarvaultidentities.controlplane.cluster.x-k8s.io": "get list watch",
		// No such resource exists: a policy checks this permission.
		"kubeconfigs.nova-platform.io":                               "write",
		"*.infrastructure.cluster.x-k8s.io":                          "get list watch create patch delete",
		"customresourcedefinitions.apiextensions.k8s.io":             "get list watch",
		"clusters.cluster.x-k8s.io":                                  "get list watch",
		"machinesets.cluster.x-k8s.io":                               "get list watch",
		"machinedeployments.cluster.x-k8s.io":                        "get list watch patch",
		"machinepools.cluster.x-k8s.io":                              "list",
		"machines.cluster.x-k8s.io":                                  "get list watch create patch delete",
		"machines.cluster.x-k8s.io/status":                           "patch",
		"novaconfigs.bootstrap.cluster.x-k8s.io":                     "get list watch create patch delete",
		"novacontrolplanes.controlplane.cluster.x-k8s.io":            "get list watch patch",
		"novacontrolplanes.controlplane.cluster.x-k8s.io/status":     "patch",
		"novacontrolplanes.controlplane.cluster.x-k8s.io/finalizers": "update",
		"novaetcdrestores.controlplane.cluster.x-k8s.io":             "get list watch patch",
		"novaetcdrestores.controlplane.cluster.x-k8s.io/status":      "patch",
		"novaetcdrestores.controlplane.cluster.x-k8s.io/finalizers":  "update",
	},
	"nova-addon": {
		"events": "create patch", "events.events.k8s.io": "create patch",
		"secrets": "get list watch", "namespaces": "get list watch",
		"customresourcedefinitions.apiextensions.k8s.io":    "get list watch",
		"clusters.cluster.x-k8s.io":                         "get list watch patch",
		"clusters.cluster.x-k8s.io/status":                  "patch",
		"machines.cluster.x-k8s.io":                         "get list watch",
		"machinepools.cluster.x-k8s.io":                     "get list watch",
		"machinedeployments.cluster.x-k8s.io":               "get list watch",
		"*.bootstrap.cluster.x-k8s.io":                      "get list watch",
		"*.controlplane.cluster.x-k8s.io":                   "get list watch",
		"*.infrastructure.cluster.x-k8s.io":                 "get list watch",
		"novamodulesets.addons.cluster.x-k8s.io":            "get list watch patch",
		"novamodulesets.addons.cluster.x-k8s.io/status":     "patch",
		"novamodulesets.addons.cluster.x-k8s.io/finalizers": "update",
		"controllerrevisions.apps":                          "get list watch create delete",
		"clusterprofiles.multicluster.x-k8s.io":             "create patch",
		"clusterprofiles.multicluster.x-k8s.io/status":      "patch",
		"helmreleases.helm.toolkit.fluxcd.io":               "get list watch create patch delete",
		"kustomizations.kustomize.toolkit.fluxcd.io":        "get list watch create patch delete",
		"gitrepositories.source.toolkit.fluxcd.io":          "get list watch create patch delete",
		"helmrepositories.source.toolkit.fluxcd.io":         "get list watch create patch delete",
		"ocirepositories.source.toolkit.fluxcd.io":          "get list watch create patch delete",
	},
	"nova-fleet": {
		"namespaces=kube-system":    "get",
		"clusters.cluster.x-k8s.io": "get list watch", "machines.cluster.x-k8s.io": "get list watch",
		"novacontrolplanes.controlplane.cluster.x-k8s.io": "get list watch",
	},
}

// fleetPage is the program of the fleet page. It is no provider.
var fleetPage = Provider{Dir: "nova-fleet"}

// infraPermissions are those of the manager whose kinds begin with a name. One
// set of reconcilers serves every hypervisor.
func infraPermissions(kinds string) map[string]string {
	of := func(kind string) string { return kinds + kind + "." + infraGroup }
	return map[string]string{
		"events": "create patch", "events.events.k8s.io": "create patch",
		// A policy bounds these writes.
		"secrets": "get list watch patch", "namespaces": "get list watch",
		"clusters.cluster.x-k8s.io": "get list watch", "machinedeployments.cluster.x-k8s.io": "get list watch",
		"machines.cluster.x-k8s.io":             "get list watch patch",
		"ipaddressclaims.ipam.cluster.x-k8s.io": "get list watch create patch delete",
		"ipaddresses.ipam.cluster.x-k8s.io":     "get",
		of("identities"):                        "get list watch",
		of("clusters"):                          "get list watch patch",
		of("clusters") + "/status":              "patch",
		of("clusters") + "/finalizers":          "update",
		of("machines"):                          "get list watch patch",
		of("machines") + "/status":              "patch",
		of("machines") + "/finalizers":          "update",
		of("machinetemplates"):                  "get list watch",
		of("machinetemplates") + "/status":      "patch",
	}
}

// forAll are the permissions that every manager has, to authenticate and
// authorize requests for metrics.
var forAll = map[string]string{
	"tokenreviews.authentication.k8s.io": "create", "subjectaccessreviews.authorization.k8s.io": "create",
}

// never are permissions that no manager has, beside those that only others
// have. Most of them lead to all others.
var never = map[string]string{
	"users": "impersonate", "groups": "impersonate", "serviceaccounts": "get list create patch update impersonate",
	"serviceaccounts/token": "create", "secrets": "deletecollection", "configmaps": "delete deletecollection",
	"pods": "get list create patch update delete", "pods/exec": "create get", "pods/ephemeralcontainers": "patch update",
	"nodes": "get list", "nodes/proxy": "get create", "namespaces": "create patch update delete",
	"deployments.apps": "get create patch update delete", "daemonsets.apps": "create patch update", "jobs.batch": "create",
	"roles.rbac.authorization.k8s.io":                                "create patch update bind escalate",
	"rolebindings.rbac.authorization.k8s.io":                         "create patch update",
	"clusterroles.rbac.authorization.k8s.io":                         "create patch update bind escalate",
	"clusterrolebindings.rbac.authorization.k8s.io":                  "create patch update",
	"validatingadmissionpolicies.admissionregistration.k8s.io":       "create patch update delete",
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": "create patch update delete",
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   "create patch update delete",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     "create patch update delete",
	"customresourcedefinitions.apiextensions.k8s.io":                 "create patch update delete",
	"certificatesigningrequests.certificates.k8s.io":                 "get create",
	"certificatesigningrequests.certificates.k8s.io/approval":        "patch update",
	"leases.coordination.k8s.io":                                     "get list create patch update delete",
	"clusters.cluster.x-k8s.io":                                      "create patch update delete",
	"machinedeployments.cluster.x-k8s.io/scale":                      "patch update",
	"novavsphereidentities.infrastructure.cluster.x-k8s.io":          "update",
	"novazvirtidentities.infrastructure.cluster.x-k8s.io":            "update",
	"novastarvaultidentities.controlplane.cluster.x-k8s.io":          "create patch update delete",
	"novamodulesets.addons.cluster.x-k8s.io":                         "create update delete",
	"apiservices.apiregistration.k8s.io":                             "create patch update",
	"clusterclasses.cluster.x-k8s.io":                                "create patch update delete",
}

// cell is one permission, as in a SubjectAccessReview.
type cell struct{ verb, group, resource, subresource, name string }

func (c cell) String() string {
	name := c.resource
	if c.group != "" {
		name += "." + c.group
	}
	if c.subresource != "" {
		name += "/" + c.subresource
	}
	if c.name != "" {
		name += " " + c.name
	}
	return c.verb + " " + name
}

// cells spells permissions out.
func cells(of map[string]string) map[cell]bool {
	all := map[cell]bool{}
	for name, verbs := range of {
		whole, only, _ := strings.Cut(name, "=")
		whole, sub, _ := strings.Cut(whole, "/")
		resource, group, _ := strings.Cut(whole, ".")
		for verb := range strings.FieldsSeq(verbs) {
			all[cell{verb, group, resource, sub, only}] = true
		}
	}
	return all
}

// has reports whether permissions include one, also as all of a group's.
func has(all map[cell]bool, c cell) bool {
	ofAll := c
	ofAll.name = ""
	return all[c] || all[ofAll] || all[cell{verb: c.verb, group: c.group, resource: "*"}]
}

// mentioned are all permissions that any manager has or must not have.
func mentioned() []cell {
	all := cells(never)
	maps.Copy(all, cells(forAll))
	for _, of := range permissions {
		maps.Copy(all, cells(of))
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b cell) int { return strings.Compare(a.String(), b.String()) })
}

// matrix has a row for each manager and permission.
func matrix() []TableEntry {
	var entries []TableEntry
	for _, p := range append(Providers(), fleetPage) {
		granted := cells(permissions[p.Dir])
		maps.Copy(granted, cells(forAll))
		for _, c := range mentioned() {
			may := "may not "
			if has(granted, c) {
				may = "may "
			}
			entries = append(entries, Entry(p.Dir+" "+may+c.String(), p, c, has(granted, c)))
		}
	}
	return entries
}

func allowed(ctx SpecContext, p Provider, c cell, namespace string) bool {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: p.ServiceAccount(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.subresource, Name: c.name,
		},
	}}
	Expect(server.Client.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

var _ = Describe("the permissions of a manager", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		for _, p := range Providers() {
			Eventually(func() bool { return allowed(ctx, p, cell{verb: "get", resource: "secrets"}, "tenants") }).
				WithTimeout(policyTimeout).Should(BeTrue(), p.Dir)
		}
	})

	DescribeTable("in the matrix:", func(ctx SpecContext, p Provider, c cell, may bool) {
		Expect(allowed(ctx, p, c, "tenants")).To(Equal(may))
	}, matrix())

	// A rule that the matrix does not know would be proven by no row.
	DescribeTable("are all in the matrix:", func(p Provider) {
		granted := map[cell]bool{}
		for _, o := range ofKind(p, "ClusterRole") {
			for _, rule := range roleOf(o).Rules {
				names := rule.ResourceNames
				if len(names) == 0 {
					names = []string{""}
				}
				Expect(rule.NonResourceURLs).To(BeEmpty())
				for _, resource := range rule.Resources {
					resource, sub, _ := strings.Cut(resource, "/")
					for _, group := range rule.APIGroups {
						for _, verb := range rule.Verbs {
							for _, name := range names {
								granted[cell{verb, group, resource, sub, name}] = true
							}
						}
					}
				}
			}
		}
		expected := cells(permissions[p.Dir])
		maps.Copy(expected, cells(forAll))
		Expect(slices.Collect(maps.Keys(granted))).To(ConsistOf(slices.Collect(maps.Keys(expected))))
	}, entries(), Entry(fleetPage.Dir, fleetPage))

	// The managers of all hypervisors run the same reconcilers, so a permission that only one of
	// them lacks is missing by mistake.
	It("are the same on every hypervisor", func() {
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
		Expect(rules("nova-proxmox", "novaproxmox")).To(Equal(vsphere))
	})

	It("include a lease and events in its own namespace, and no lease in another manager's", func(ctx SpecContext) {
		for _, p := range Providers() {
			for _, verb := range []string{"get", "create", "update"} {
				lease := cell{verb: verb, group: "coordination.k8s.io", resource: "leases"}
				Eventually(func() bool { return allowed(ctx, p, lease, p.Namespace()) }).WithTimeout(policyTimeout).Should(BeTrue(), p.Dir)
				for _, other := range Providers() {
					Expect(allowed(ctx, p, lease, other.Namespace())).To(Equal(other.Dir == p.Dir), "%s: %s in %s", p.Dir, lease, other.Namespace())
				}
			}
			Expect(allowed(ctx, p, cell{verb: "create", resource: "events"}, p.Namespace())).To(BeTrue())
		}
	})

	It("do not include writes in its own namespace for the fleet page", func(ctx SpecContext) {
		Eventually(func() bool {
			return allowed(ctx, fleetPage, cell{verb: "list", group: clusterGroup, resource: "clusters"}, "tenants")
		}).WithTimeout(policyTimeout).Should(BeTrue())
		for _, c := range mentioned() {
			if !slices.Contains([]string{"get", "list", "watch"}, c.verb) && c.group != "authentication.k8s.io" && c.group != "authorization.k8s.io" {
				Expect(allowed(ctx, fleetPage, c, fleetPage.Namespace())).To(BeFalse(), c.String())
			}
		}
	})
})

func roleOf(o *unstructured.Unstructured) *rbacv1.ClusterRole {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role)).To(Succeed())
	return role
}

// sumUp binds the roles that p's own role is aggregated from. The controller
// that aggregates roles is not in this API server.
func sumUp(ctx context.Context, p Provider) {
	GinkgoHelper()
	for _, o := range ofKind(p, "ClusterRole") {
		if role := roleOf(o); role.AggregationRule != nil {
			bindAggregated(ctx, p, role.AggregationRule)
		}
	}
}

// bindAggregated binds the roles of p that rule selects to p's manager.
func bindAggregated(ctx context.Context, p Provider, rule *rbacv1.AggregationRule) {
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
