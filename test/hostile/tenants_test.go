package hostile

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/env"
	"github.com/nova-platform/cluster-api-provider-nova/test/vcenter"
)

// blue is the cluster of another tenant. No attack may affect it.
var blue = bed.Cluster{Name: "blue", Namespace: "team-blue", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.50"}

// blueAPI is its API server.
var blueAPI *bed.API

// startBlue creates the cluster of the other tenant. Its machines are VMs without
// hosts; its API server is real.
func startBlue(ctx context.Context) {
	GinkgoHelper()
	Expect(b.Create(ctx, blue)).To(Succeed())
	var err error
	blueAPI, err = b.StartAPI(ctx, blue)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(blueAPI.Stop)
	Eventually(running).WithContext(ctx).WithArguments(blue).Should(HaveLen(2))
}

// running are the VMs of a cluster on vSphere that are on, by name.
func running(ctx context.Context, c bed.Cluster) (map[string]vcenter.VM, error) {
	all, err := b.Control().VMs(ctx)
	on := map[string]vcenter.VM{}
	for i := range all {
		if all[i].PoweredOn && strings.HasPrefix(all[i].Name, c.Name+"-") {
			on[all[i].Name] = all[i]
		}
	}
	return on, err
}

// progresses expects that the other tenant gets a further machine: bootstrap
// data is rendered, and a VM is cloned and powered on.
func progresses(ctx context.Context) {
	GinkgoHelper()
	By("creating a machine of another tenant")
	before, err := running(ctx, blue)
	Expect(err).NotTo(HaveOccurred())
	scale(ctx, blue, 1)
	Eventually(running).WithContext(ctx).WithArguments(blue).WithTimeout(progressTimeout).
		Should(HaveLen(len(before)+1), "another tenant's machine does not get on")
}

// scale gives a cluster more workers.
func scale(ctx context.Context, c bed.Cluster, more int32) {
	GinkgoHelper()
	md := &clusterv1.MachineDeployment{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-worker"}, md)).To(Succeed())
	before := md.DeepCopy()
	*md.Spec.Replicas += more
	Expect(b.Client.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
}

// tenantUser creates a namespace and returns a client of a user with all
// permissions on the objects of clusters, Secrets and ConfigMaps in it.
func tenantUser(ctx context.Context, namespace string) client.Client {
	GinkgoHelper()
	user := namespace + "-user"
	all := []string{"*"}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: all},
				{APIGroups: []string{
					"cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io",
					"addons.cluster.x-k8s.io", "ipam.cluster.x-k8s.io",
				}, Resources: all, Verbs: all},
			},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		},
	}
	for _, object := range objects {
		Expect(ignoreExists(b.Client.Create(ctx, object))).To(Succeed())
	}
	config := rest.CopyConfig(b.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	// A new role takes effect a moment later.
	Eventually(func() error { return c.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace)) }).Should(Succeed())
	return c
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// object returns an object of any kind. Go types would prune the fields that an
// attacker adds.
func object(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	o.SetNamespace(namespace)
	o.SetName(name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

const (
	coreV      = "cluster.x-k8s.io/v1beta2"
	infraV     = "infrastructure.cluster.x-k8s.io/v1beta2"
	bootstrapV = "bootstrap.cluster.x-k8s.io/v1beta2"
	planeV     = "controlplane.cluster.x-k8s.io/v1beta2"
	addonsV    = "addons.cluster.x-k8s.io/v1beta2"
)

// reference returns a reference of Cluster API's contract.
func reference(apiVersion, kind, name string) map[string]any {
	group, _, _ := strings.Cut(apiVersion, "/")
	return map[string]any{"apiGroup": group, "kind": kind, "name": name}
}

// conditionsOf returns the conditions of an object as lines "Type=Status Reason: message".
func conditionsOf(o *unstructured.Unstructured) func(context.Context) (string, error) {
	return conditionsIn(b.Client, o)
}

// conditionsIn is conditionsOf for an object in any management cluster.
func conditionsIn(in client.Client, o *unstructured.Unstructured) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := in.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return "", err
		}
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		var all strings.Builder
		for _, c := range conditions {
			c := c.(map[string]any)
			fmt.Fprintf(&all, "%v=%v %v: %v\n", c["type"], c["status"], c["reason"], c["message"])
		}
		return all.String(), err
	}
}

// barePlane is a control plane without machines.
func barePlane(namespace, name string) *unstructured.Unstructured {
	return object(planeV, "NovaControlPlane", namespace, name, map[string]any{
		"replicas": int64(1), "version": bed.KubernetesVersion, "endpoint": map[string]any{"provider": "External"},
		"machineTemplate": map[string]any{"spec": map[string]any{
			"infrastructureRef": reference(infraV, "NovaVSphereMachineTemplate", name),
		}},
	})
}

// bareClusterObject is a Cluster without infrastructure, which Cluster API takes
// for provisioned at once, and whose endpoint is an address.
func bareClusterObject(namespace, name, address string) *unstructured.Unstructured {
	GinkgoHelper()
	hostname, port, found := strings.Cut(address, ":")
	Expect(found).To(BeTrue())
	return object(coreV, "Cluster", namespace, name, map[string]any{
		"controlPlaneRef":      reference(planeV, "NovaControlPlane", name),
		"controlPlaneEndpoint": map[string]any{"host": hostname, "port": number(port)},
	})
}

// bareCluster makes a Cluster without infrastructure, and its control plane.
func bareCluster(ctx context.Context, as client.Client, namespace, name, address string) *unstructured.Unstructured {
	GinkgoHelper()
	plane := barePlane(namespace, name)
	Expect(as.Create(ctx, plane)).To(Succeed())
	Expect(as.Create(ctx, bareClusterObject(namespace, name, address))).To(Succeed())
	return plane
}

func number(text string) int64 {
	GinkgoHelper()
	n, err := strconv.ParseInt(text, 10, 32)
	Expect(err).NotTo(HaveOccurred())
	return n
}
