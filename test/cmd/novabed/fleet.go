package main

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

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// fleetParallel is how many objects are written at once.
const fleetParallel = 16

// fleet is many control planes of pretended machines, in a namespace of their
// own.
type fleet struct {
	bed                *bed.Bed
	which              string
	clusters, replicas int
	// told is how many were ready when that was last said.
	told int
}

func (f *fleet) namespace() string    { return "fleet-" + f.which }
func (f *fleet) cluster(i int) string { return fmt.Sprintf("%s-%03d", f.which, i) }
func (f *fleet) plane() string {
	return map[string]string{novaPlane: "NovaControlPlane", kubeadmPlane: "KubeadmControlPlane"}[f.which]
}
// fields are group, version and kind of an object of the fleet.
func (f *fleet) fields(kind string) schema.GroupVersionKind {
	group := map[string]string{
		"Cluster": "cluster.x-k8s.io", "DevCluster": "infrastructure.cluster.x-k8s.io", "DevMachineTemplate": "infrastructure.cluster.x-k8s.io",
	}[kind]
	if group == "" {
		group = "controlplane.cluster.x-k8s.io"
	}
	return schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind}
}

// apply makes all clusters.
func (f *fleet) apply(ctx context.Context) error {
	ns := &corev1.Namespace{}
	ns.Name = f.namespace()
	if err := f.bed.Client.Create(ctx, ns); err != nil {
		return fmt.Errorf("making namespace: %w", err)
	}
	if err := f.create(ctx, f.object("DevMachineTemplate", "control-plane", machineTemplate())); err != nil {
		return err
	}
	pairs, err := authorities()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fleetParallel)
	for i := range f.clusters {
		group.Go(func() error { return f.applyOne(ctx, f.cluster(i), pairs) })
	}
	return group.Wait()
}

func (f *fleet) applyOne(ctx context.Context, name string, pairs secret.Certificates) error {
	for _, pair := range pairs {
		s := &corev1.Secret{Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
			secret.TLSCrtDataName: pair.KeyPair.Cert, secret.TLSKeyDataName: pair.KeyPair.Key,
		}}
		s.Namespace, s.Name = f.namespace(), secret.Name(name, pair.Purpose)
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
	infra.SetAnnotations(map[string]string{"bench.nova/fleet": f.which})
	objects := []client.Object{
		infra,
		f.object(f.plane(), name, f.planeSpec()),
		f.object("Cluster", name, map[string]any{
			"clusterNetwork": map[string]any{
				"services": map[string]any{"cidrBlocks": []any{"10.128.0.0/12"}},
				"pods":     map[string]any{"cidrBlocks": []any{"192.168.0.0/16"}},
			},
			"controlPlaneRef":   reference(f.plane()),
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

func (f *fleet) create(ctx context.Context, object client.Object) error {
	if err := f.bed.Client.Create(ctx, object); err != nil {
		return fmt.Errorf("making %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

func (f *fleet) object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(f.fields(kind))
	o.SetNamespace(f.namespace())
	o.SetName(name)
	return o
}

func (f *fleet) planeSpec() map[string]any {
	spec := map[string]any{
		"replicas": int64(f.replicas),
		"version":  bed.KubernetesVersion,
		"machineTemplate": map[string]any{"spec": map[string]any{"infrastructureRef": map[string]any{
			"apiGroup": f.fields("DevMachineTemplate").Group, "kind": "DevMachineTemplate", "name": "control-plane",
		}}},
	}
	if f.which == novaPlane {
		// The infrastructure has the endpoint.
		spec["endpoint"] = map[string]any{"provider": "External"}
	}
	return spec
}

// machineTemplate takes the times that Cluster API's own template takes.
func machineTemplate() map[string]any {
	after := func(seconds string) map[string]any {
		return map[string]any{"provisioning": map[string]any{"startupDuration": seconds, "startupJitter": "0.2"}}
	}
	return map[string]any{"template": map[string]any{"spec": map[string]any{"backend": map[string]any{"inMemory": map[string]any{
		"vm": after("10s"), "node": after("2s"), "apiServer": after("2s"), "etcd": after("2s"),
	}}}}}
}

// authorities are the key pairs of all clusters. The pretended API servers take
// only RSA keys, and what these cost to make depends on luck.
func authorities() (secret.Certificates, error) {
	pairs := secret.NewCertificatesForInitialControlPlane(&kubeadmv1.ClusterConfiguration{})
	for _, pair := range pairs {
		if err := pair.Generate(); err != nil {
			return nil, fmt.Errorf("making certificates: %w", err)
		}
	}
	return pairs, nil
}

// ready tells whether all control planes are, and says on the way how many.
func (f *fleet) ready(ctx context.Context, out io.Writer, started time.Time) (bool, error) {
	list, err := f.planes(ctx)
	if err != nil {
		return false, err
	}
	ready := 0
	for i := range list.Items {
		if planeReady(&list.Items[i], int64(f.replicas)) {
			ready++
		}
	}
	if step := max(f.clusters/5, 1); ready/step > f.told/step {
		fmt.Fprintf(out, "%s: %d ready after %.1f s\n", f.which, ready, time.Since(started).Seconds())
	}
	f.told = ready
	return ready == f.clusters, nil
}

func (f *fleet) planes(ctx context.Context) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(f.fields(f.plane() + "List"))
	if err := f.bed.Client.List(ctx, list, client.InNamespace(f.namespace())); err != nil {
		return nil, fmt.Errorf("listing control planes: %w", err)
	}
	return list, nil
}

// planeReady reads what the contract says of every control plane.
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

// tell says what the first control planes that are not ready wait for.
func (f *fleet) tell(ctx context.Context, out io.Writer) error {
	list, err := f.planes(ctx)
	if err != nil {
		return err
	}
	left := 3
	for i := range list.Items {
		if plane := &list.Items[i]; !planeReady(plane, int64(f.replicas)) && left > 0 {
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

// remove deletes all clusters.
func (f *fleet) remove(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fleetParallel)
	for i := range f.clusters {
		group.Go(func() error {
			err := f.bed.Client.Delete(ctx, f.object("Cluster", f.cluster(i), nil))
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting cluster: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// gone tells whether no cluster is left.
func (f *fleet) gone(ctx context.Context) (bool, error) {
	list := &clusterv1.ClusterList{}
	if err := f.bed.Client.List(ctx, list, client.InNamespace(f.namespace())); err != nil {
		return false, fmt.Errorf("listing clusters: %w", err)
	}
	return len(list.Items) == 0, nil
}
