package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
)

// group is Cluster API's.
const group = "cluster.x-k8s.io"

// syncTimeout is the time for a watch to start. The autoscaler waits indefinitely, so a resource
// that it has no permission to watch stops it without an error.
const syncTimeout = 20 * time.Second

// As returns a configuration with the rights of a ServiceAccount.
func As(config *rest.Config, namespace, account string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return config
}

// Driver is one autoscaler for one workload cluster.
type Driver struct {
	namespace, cluster string
	objects            dynamic.Interface
	discovery          discovery.DiscoveryInterface
	scales             scale.ScalesGetter
	informers          dynamicinformer.DynamicSharedInformerFactory
	version            string
	stop               chan struct{}
}

// New starts the watches of the autoscaler for
// --node-group-auto-discovery=clusterapi:namespace=NAMESPACE,clusterName=CLUSTER.
func New(ctx context.Context, management *rest.Config, namespace, cluster string) (*Driver, error) {
	d := &Driver{namespace: namespace, cluster: cluster, stop: make(chan struct{})}
	var err error
	if d.objects, err = dynamic.NewForConfig(management); err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	if d.discovery, err = discovery.NewDiscoveryClientForConfig(management); err != nil {
		return nil, fmt.Errorf("making discovery client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d.discovery))
	d.scales, err = scale.NewForConfig(management, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(d.discovery))
	if err != nil {
		return nil, fmt.Errorf("making scale client: %w", err)
	}
	if d.version, err = d.preferred(group); err != nil {
		return nil, err
	}
	d.informers = dynamicinformer.NewFilteredDynamicSharedInformerFactory(d.objects, 0, namespace, nil)
	for _, resource := range []string{"machinedeployments", "machinesets", "machinepools", "machines"} {
		if _, err := d.lister(ctx, d.resource(resource)); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Close ends all watches.
func (d *Driver) Close() error {
	close(d.stop)
	d.informers.Shutdown()
	return nil
}

func (d *Driver) resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: d.version, Resource: name}
}

// preferred returns the version of a group that the API server prefers.
func (d *Driver) preferred(name string) (string, error) {
	list, err := d.discovery.ServerGroups()
	if err != nil {
		return "", fmt.Errorf("discovering groups: %w", err)
	}
	for i := range list.Groups {
		if list.Groups[i].Name == name {
			return list.Groups[i].PreferredVersion.Version, nil
		}
	}
	return "", fmt.Errorf("group %q is not served", name)
}

// lister returns the cached objects of a resource, once it is watched.
func (d *Driver) lister(ctx context.Context, resource schema.GroupVersionResource) (cache.GenericNamespaceLister, error) {
	informer := d.informers.ForResource(resource)
	informed := informer.Informer()
	d.informers.Start(d.stop)
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informed.HasSynced) {
		return nil, fmt.Errorf("watching %s: nothing came: may the account list and watch it?", resource.Resource)
	}
	return informer.Lister().ByNamespace(d.namespace), nil
}

// list returns objects of this cluster.
func (d *Driver) list(ctx context.Context, resource string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	lister, err := d.lister(ctx, d.resource(resource))
	if err != nil {
		return nil, err
	}
	objects, err := lister.List(selector)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource, err)
	}
	var found []*unstructured.Unstructured
	for _, o := range objects {
		u, isUnstructured := o.(*unstructured.Unstructured)
		if !isUnstructured {
			return nil, fmt.Errorf("listing %s: got %T", resource, o)
		}
		if name, _, _ := unstructured.NestedString(u.Object, "spec", "clusterName"); name == d.cluster {
			found = append(found, u.DeepCopy())
		}
	}
	return found, nil
}

// Groups returns the node groups: MachineDeployments with bounds that are not
// paused and, without nodes, of known size.
func (d *Driver) Groups(ctx context.Context) ([]*Group, error) {
	deployments, err := d.list(ctx, "machinedeployments", labels.Everything())
	if err != nil {
		return nil, err
	}
	var groups []*Group
	for _, u := range deployments {
		g, found, err := d.group(ctx, u)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", u.GetName(), err)
		}
		if found {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *Group) int { return strings.Compare(a.ID(), b.ID()) })
	return groups, nil
}

// GroupOf returns the node group of a Node, if it has one. It follows the references from the
// provider ID to the Machine, its MachineSet and its MachineDeployment.
func (d *Driver) GroupOf(ctx context.Context, node *corev1.Node) (*Group, bool, error) {
	machine, found, err := d.machineOf(ctx, node.Spec.ProviderID)
	if err != nil || !found {
		return nil, false, err
	}
	set, found, err := d.owner(ctx, machine, "MachineSet", "machinesets")
	if err != nil || !found {
		return nil, false, err
	}
	deployment, found, err := d.owner(ctx, set, "MachineDeployment", "machinedeployments")
	if err != nil || !found {
		return nil, false, err
	}
	return d.group(ctx, deployment)
}

// owner returns the owner of a kind, if there is one.
func (d *Driver) owner(ctx context.Context, of *unstructured.Unstructured, kind, resource string) (*unstructured.Unstructured, bool, error) {
	index := slices.IndexFunc(of.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == kind })
	if index < 0 {
		return nil, false, nil
	}
	objects, err := d.list(ctx, resource, labels.Everything())
	if err != nil {
		return nil, false, err
	}
	for _, u := range objects {
		if u.GetName() == of.GetOwnerReferences()[index].Name {
			return u, true, nil
		}
	}
	return nil, false, nil
}

// machineOf returns the Machine of an instance, if there is one: by the part after the last slash
// of its provider ID, or by the name in the ID of an instance without a node.
func (d *Driver) machineOf(ctx context.Context, id string) (*unstructured.Unstructured, bool, error) {
	machines, err := d.list(ctx, "machines", labels.Everything())
	if err != nil {
		return nil, false, err
	}
	var found []*unstructured.Unstructured
	for _, m := range machines {
		own, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
		named := slices.Contains([]string{pending(m), deleting(m)}, id)
		if named || own != "" && last(own) == last(id) {
			found = append(found, m)
		}
	}
	if len(found) > 1 {
		return nil, false, fmt.Errorf("%d Machines have the provider ID %q", len(found), id)
	}
	if len(found) == 0 {
		return nil, false, nil
	}
	return found[0], true, nil
}

func last(id string) string { return id[strings.LastIndex(id, "/")+1:] }
