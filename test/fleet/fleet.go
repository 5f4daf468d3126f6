package fleet

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// version is the Kubernetes version of the control planes. No program runs it.
const version = "v1.36.3"

// parallel is how many objects are written at once.
const parallel = 16

// The kinds of control planes.
const (
	Nova    = "NovaControlPlane"
	Kubeadm = "KubeadmControlPlane"
)

// Fleet is many control planes of pretended machines, in a namespace of their
// own.
type Fleet struct {
	// Client reaches the management cluster.
	Client client.Client
	// Kind is Nova or Kubeadm.
	Kind string
	// Name begins the names of the clusters, and is that of their namespace.
	Name string
	// Clusters is their number, and Replicas that of each one's machines.
	Clusters, Replicas int
	// Quick has machines come up in a fifth of the usual time.
	Quick bool
}

func (f *Fleet) cluster(i int) string { return fmt.Sprintf("%s-%03d", f.Name, i) }

// fields are group, version and kind of an object of the fleet.
func (f *Fleet) fields(kind string) schema.GroupVersionKind {
	group := map[string]string{
		"Cluster": "cluster.x-k8s.io", "DevCluster": "infrastructure.cluster.x-k8s.io", "DevMachineTemplate": "infrastructure.cluster.x-k8s.io",
	}[kind]
	if group == "" {
		group = "controlplane.cluster.x-k8s.io"
	}
	return schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind}
}

// Apply makes all clusters.
func (f *Fleet) Apply(ctx context.Context) error {
	ns := &corev1.Namespace{}
	ns.Name = f.Name
	if err := f.Client.Create(ctx, ns); err != nil {
		return fmt.Errorf("making namespace: %w", err)
	}
	if err := f.create(ctx, f.object("DevMachineTemplate", "control-plane", f.machineTemplate())); err != nil {
		return err
	}
	pairs, err := authorities()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range f.Clusters {
		group.Go(func() error { return f.applyOne(ctx, f.cluster(i), pairs) })
	}
	return group.Wait()
}

func (f *Fleet) applyOne(ctx context.Context, name string, pairs secret.Certificates) error {
	for _, pair := range pairs {
		s := &corev1.Secret{Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
			secret.TLSCrtDataName: pair.KeyPair.Cert, secret.TLSKeyDataName: pair.KeyPair.Key,
		}}
		s.Namespace, s.Name = f.Name, secret.Name(name, pair.Purpose)
		s.Labels = map[string]string{clusterv1.ClusterNameLabel: name}
		if err := f.create(ctx, s); err != nil {
			return err
		}
	}
	reference := func(kind string) map[string]any {
		return map[string]any{"apiGroup": f.fields(kind).Group, "kind": kind, "name": name}
	}
	infra := f.object("DevCluster", name, map[string]any{"backend": map[string]any{"inMemory": map[string]any{}}})
	// Its controller writes into the annotations without asking whether there
	// are any.
	infra.SetAnnotations(map[string]string{"bench.nova/fleet": f.Name})
	objects := []client.Object{
		infra,
		f.object(f.Kind, name, f.planeSpec()),
		f.object("Cluster", name, map[string]any{
			"clusterNetwork": map[string]any{
				"services": map[string]any{"cidrBlocks": []any{"10.128.0.0/12"}},
				"pods":     map[string]any{"cidrBlocks": []any{"192.168.0.0/16"}},
			},
			"controlPlaneRef":   reference(f.Kind),
			"infrastructureRef": reference("DevCluster"),
		}),
	}
	for _, object := range objects {
		if err := f.create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) create(ctx context.Context, object client.Object) error {
	if err := f.Client.Create(ctx, object); err != nil {
		return fmt.Errorf("making %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

func (f *Fleet) object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(f.fields(kind))
	o.SetNamespace(f.Name)
	o.SetName(name)
	return o
}

func (f *Fleet) planeSpec() map[string]any {
	spec := map[string]any{
		"replicas": int64(f.Replicas),
		"version":  version,
		"machineTemplate": map[string]any{"spec": map[string]any{"infrastructureRef": map[string]any{
			"apiGroup": f.fields("DevMachineTemplate").Group, "kind": "DevMachineTemplate", "name": "control-plane",
		}}},
	}
	if f.Kind == Nova {
		// The infrastructure has the endpoint.
		spec["endpoint"] = map[string]any{"provider": "External"}
	}
	return spec
}

// machineTemplate takes the times that Cluster API's own template takes.
func (f *Fleet) machineTemplate() map[string]any {
	after := func(usual time.Duration) map[string]any {
		if f.Quick {
			usual /= 5
		}
		return map[string]any{"provisioning": map[string]any{"startupDuration": usual.String(), "startupJitter": "0.2"}}
	}
	return map[string]any{"template": map[string]any{"spec": map[string]any{"backend": map[string]any{"inMemory": map[string]any{
		"vm": after(10 * time.Second), "node": after(2 * time.Second), "apiServer": after(2 * time.Second), "etcd": after(2 * time.Second),
	}}}}}
}

// authorities are the key pairs of all clusters. The simulated API servers accept only RSA keys,
// whose creation takes a random time.
func authorities() (secret.Certificates, error) {
	pairs := secret.NewCertificatesForInitialControlPlane(&kubeadmv1.ClusterConfiguration{})
	for _, pair := range pairs {
		if err := pair.Generate(); err != nil {
			return nil, fmt.Errorf("making certificates: %w", err)
		}
	}
	return pairs, nil
}

// Ready is how many control planes are.
func (f *Fleet) Ready(ctx context.Context) (int, error) {
	list, err := f.planes(ctx)
	if err != nil {
		return 0, err
	}
	ready := 0
	for i := range list.Items {
		if planeReady(&list.Items[i], int64(f.Replicas)) {
			ready++
		}
	}
	return ready, nil
}

// Scale gives all control planes another number of machines.
func (f *Fleet) Scale(ctx context.Context, replicas int) error {
	f.Replicas = replicas
	list, err := f.planes(ctx)
	if err != nil {
		return err
	}
	for i := range list.Items {
		before := list.Items[i].DeepCopy()
		if err := unstructured.SetNestedField(list.Items[i].Object, int64(replicas), "spec", "replicas"); err != nil {
			return fmt.Errorf("scaling %s: %w", before.GetName(), err)
		}
		if err := f.Client.Patch(ctx, &list.Items[i], client.MergeFrom(before)); err != nil {
			return fmt.Errorf("scaling %s: %w", before.GetName(), err)
		}
	}
	return nil
}

func (f *Fleet) planes(ctx context.Context) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(f.fields(f.Kind + "List"))
	if err := f.Client.List(ctx, list, client.InNamespace(f.Name)); err != nil {
		return nil, fmt.Errorf("listing control planes: %w", err)
	}
	return list, nil
}

// planeReady reads the status fields that the contract requires of every control plane.
func planeReady(plane *unstructured.Unstructured, replicas int64) bool {
	ready, _, err := unstructured.NestedInt64(plane.Object, "status", "readyReplicas")
	return err == nil && ready == replicas && condition(plane, clusterv1.AvailableCondition)["status"] == string(metav1.ConditionTrue)
}

func condition(object *unstructured.Unstructured, name string) map[string]any {
	all, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return nil
	}
	for _, c := range all {
		if c, ok := c.(map[string]any); ok && c["type"] == name {
			return c
		}
	}
	return nil
}

// PrintConditions prints the conditions of the first control planes that are not ready.
func (f *Fleet) PrintConditions(ctx context.Context, out io.Writer) error {
	list, err := f.planes(ctx)
	if err != nil {
		return err
	}
	left := 3
	for i := range list.Items {
		if plane := &list.Items[i]; !planeReady(plane, int64(f.Replicas)) && left > 0 {
			left--
			conditions, _, err := unstructured.NestedSlice(plane.Object, "status", "conditions")
			if err != nil {
				return fmt.Errorf("reading conditions: %w", err)
			}
			for _, c := range conditions {
				fmt.Fprintf(out, "  %s %v\n", plane.GetName(), c)
			}
		}
	}
	return nil
}

// Remove deletes all clusters.
func (f *Fleet) Remove(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range f.Clusters {
		group.Go(func() error {
			err := f.Client.Delete(ctx, f.object("Cluster", f.cluster(i), nil))
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting cluster: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Gone reports whether no cluster is left.
func (f *Fleet) Gone(ctx context.Context) (bool, error) {
	list := &clusterv1.ClusterList{}
	if err := f.Client.List(ctx, list, client.InNamespace(f.Name)); err != nil {
		return false, fmt.Errorf("listing clusters: %w", err)
	}
	return len(list.Items) == 0, nil
}
