package e2e

import (
	"bytes"
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/nova-platform/cluster-api-provider-nova/api/controlplane/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	zvirtv1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/zvirt/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	framework.TryAddDefaultSchemes(s)
	Expect(controlplanev1.AddToScheme(s)).To(Succeed())
	Expect(vspherev1.AddToScheme(s)).To(Succeed())
	Expect(zvirtv1.AddToScheme(s)).To(Succeed())
	return s
}

// management is a management cluster. clusterctl creates the objects of the
// project's templates through it, and it adds the settings that only hosts of a
// test environment need.
type management struct{ framework.ClusterProxy }

// Create creates objects.
func (m management) Create(ctx context.Context, manifest []byte, options ...framework.CreateOption) error {
	objects, err := bed.Suit(manifest, bed.Cluster{})
	if err != nil {
		return err
	}
	if objects, err = unshare(objects); err != nil {
		return err
	}
	var suited bytes.Buffer
	for _, object := range objects {
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		suited.WriteString("---\n")
		suited.Write(data)
	}
	return m.ClusterProxy.Create(ctx, suited.Bytes(), options...)
}

// logs collects the logs of a machine's host.
type logs struct{}

// CollectMachineLog is called for each machine at the end of a spec.
func (logs) CollectMachineLog(_ context.Context, _ client.Client, m *clusterv1.Machine, dir string) error {
	return b.CollectHost(m.Name, dir)
}

// CollectMachinePoolLog does nothing, because there are no machine pools.
func (logs) CollectMachinePoolLog(context.Context, client.Client, *clusterv1.MachinePool, string) error {
	return nil
}

// CollectInfrastructureLogs saves the logs of the hypervisors' simulators.
func (logs) CollectInfrastructureLogs(_ context.Context, _ client.Client, _ *clusterv1.Cluster, dir string) error {
	return b.CollectPrograms(filepath.Join(dir, "programs"))
}

// waiters wait for a NovaControlPlane where the framework would wait for a
// KubeadmControlPlane.
func waiters() clusterctl.ControlPlaneWaiters {
	return clusterctl.ControlPlaneWaiters{WaitForControlPlaneInitialized: initialized, WaitForControlPlaneMachinesReady: machinesReady}
}

// initialized waits until the control plane accepts requests.
//
// The result can contain only a KubeadmControlPlane. It gets a
// KubeadmControlPlane with the fields that every control plane has, its name
// and its size, because the helpers of specs for other control planes read
// these fields. It is not sent to an API server.
func initialized(ctx context.Context, input clusterctl.ApplyCustomClusterTemplateAndWaitInput, result *clusterctl.ApplyCustomClusterTemplateAndWaitResult) {
	GinkgoHelper()
	cp := &controlplanev1.NovaControlPlane{}
	Eventually(func(g Gomega) {
		g.Expect(input.ClusterProxy.GetClient().Get(ctx, planeOf(result.Cluster), cp)).To(Succeed())
		g.Expect(cp.Status.Initialization.ControlPlaneInitialized).To(Equal(ptr.To(true)))
	}, input.WaitForControlPlaneIntervals...).Should(Succeed())
	result.ControlPlane = &kubeadmv1.KubeadmControlPlane{}
	result.ControlPlane.Namespace, result.ControlPlane.Name = cp.Namespace, cp.Name
	result.ControlPlane.Spec.Replicas, result.ControlPlane.Spec.Version = cp.Spec.Replicas, cp.Spec.Version
}

// machinesReady waits until all machines of the control plane are ready.
func machinesReady(ctx context.Context, input clusterctl.ApplyCustomClusterTemplateAndWaitInput, result *clusterctl.ApplyCustomClusterTemplateAndWaitResult) {
	GinkgoHelper()
	cp := &controlplanev1.NovaControlPlane{}
	Eventually(func(g Gomega) {
		g.Expect(input.ClusterProxy.GetClient().Get(ctx, planeOf(result.Cluster), cp)).To(Succeed())
		g.Expect(cp.Status.ReadyReplicas).To(Equal(cp.Spec.Replicas))
		g.Expect(cp.Status.UpToDateReplicas).To(Equal(cp.Spec.Replicas))
	}, input.WaitForControlPlaneIntervals...).Should(Succeed())
	framework.AssertControlPlaneFailureDomains(ctx, framework.AssertControlPlaneFailureDomainsInput{
		Lister: input.ClusterProxy.GetClient(), Cluster: result.Cluster,
	})
}

// planeOf returns the name of a cluster's control plane.
func planeOf(cluster *clusterv1.Cluster) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}
}
