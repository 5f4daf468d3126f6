package infratest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// ClusterName, MachineName, CredentialsName and BootstrapName are the names of
// the objects in a rig.
const (
	ClusterName     = "tenant"
	MachineName     = "tenant-0"
	CredentialsName = "vcenter"
	BootstrapName   = "tenant-0-bootstrap"
)

// Key is the key of the machine.
func (r *Rig) Key() hypervisor.Key {
	return hypervisor.Key{Namespace: r.Namespace, Name: MachineName}
}

func (r *Rig) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: r.Namespace, Name: name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: ClusterName},
	}
}

// InfraCluster returns a valid infrastructure cluster that is not created yet.
func (r *Rig) InfraCluster() *vspherev1.NovaVSphereCluster {
	return &vspherev1.NovaVSphereCluster{
		ObjectMeta: r.meta(ClusterName),
		Spec: vspherev1.NovaVSphereClusterSpec{
			ClusterSpec: infrav1.ClusterSpec{
				ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443},
				Server:               "vcenter.example.test",
				IdentityRef:          infrav1.IdentityReference{Name: CredentialsName},
			},
		},
	}
}

// InfraMachine returns a valid infrastructure machine that is not created yet.
func (r *Rig) InfraMachine() *vspherev1.NovaVSphereMachine {
	return &vspherev1.NovaVSphereMachine{
		ObjectMeta: r.meta(MachineName),
		Spec: vspherev1.NovaVSphereMachineSpec{
			Template: vspherev1.NovaVSphereTemplate{Name: "debian-12"},
			Network:  vspherev1.NovaVSphereNetwork{Interfaces: []vspherev1.NovaVSphereInterface{{Network: "VM Network"}}},
		},
	}
}

// Cluster returns a Cluster that is not created yet.
func (r *Rig) Cluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: ClusterName},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereCluster", Name: ClusterName,
			},
		},
	}
}

// Machine returns a Machine that is not created yet.
func (r *Rig) Machine() *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: r.meta(MachineName),
		Spec: clusterv1.MachineSpec{
			ClusterName: ClusterName,
			Bootstrap:   clusterv1.Bootstrap{DataSecretName: ptr.To(BootstrapName)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "NovaVSphereMachine", Name: MachineName,
			},
		},
	}
}

// Secret returns a Secret that is not created yet.
func (r *Rig) Secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}, StringData: data}
}

// CreateCluster creates a Cluster, its infrastructure and credentials.
func (r *Rig) CreateCluster(ctx context.Context, cluster *clusterv1.Cluster, infra *vspherev1.NovaVSphereCluster) error {
	if err := r.create(ctx, cluster, r.Secret(CredentialsName, map[string]string{"username": "nova", "password": "secret"})); err != nil {
		return err
	}
	infra.OwnerReferences = []metav1.OwnerReference{Owner(cluster, "Cluster")}
	return r.create(ctx, infra)
}

// CreateMachine creates a Machine, its infrastructure and bootstrap data.
func (r *Rig) CreateMachine(ctx context.Context, machine *clusterv1.Machine, infra *vspherev1.NovaVSphereMachine) error {
	if err := r.create(ctx, machine, r.Secret(BootstrapName, map[string]string{"value": "#cloud-config", "format": "cloud-config"})); err != nil {
		return err
	}
	infra.OwnerReferences = []metav1.OwnerReference{Owner(machine, "Machine")}
	return r.create(ctx, infra)
}

// CreateAll creates a provisioned cluster with one machine.
func (r *Rig) CreateAll(ctx context.Context) error {
	if err := r.CreateCluster(ctx, r.Cluster(), r.InfraCluster()); err != nil {
		return err
	}
	if err := r.ProvisionInfrastructure(ctx); err != nil {
		return err
	}
	return r.CreateMachine(ctx, r.Machine(), r.InfraMachine())
}

// ProvisionInfrastructure sets the status of the Cluster as Cluster API does after the
// infrastructure cluster is provisioned.
func (r *Rig) ProvisionInfrastructure(ctx context.Context) error {
	cluster := r.Cluster()
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
		return fmt.Errorf("reading Cluster: %w", err)
	}
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	if err := r.Client.Status().Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching Cluster: %w", err)
	}
	return nil
}

// Join sets the status of the Machine as Cluster API does after its node has joined the workload
// cluster.
func (r *Rig) Join(ctx context.Context) error {
	machine := r.Machine()
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
		return fmt.Errorf("reading Machine: %w", err)
	}
	before := machine.DeepCopy()
	machine.Status.NodeRef.Name = MachineName
	if err := r.Client.Status().Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching Machine: %w", err)
	}
	return nil
}

func (r *Rig) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := r.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T: %w", o, err)
		}
	}
	return nil
}

// Owner returns a reference to a Cluster or Machine that is created.
func Owner(o client.Object, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: o.GetName(), UID: o.GetUID(),
	}
}
