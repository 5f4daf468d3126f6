package modules

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// onInfra has the workers of a generated cluster be infra nodes too.
func onInfra(objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetKind() == "MachineDeployment" {
			Expect(unstructured.SetNestedField(o.Object, "", "spec", "template", "metadata", "labels", "node-role.kubernetes.io/infra")).To(Succeed())
		}
	}
}

// infraNode returns the address of the only worker, which is an infra node.
func infraNode(ctx context.Context, c bed.Cluster) string {
	GinkgoHelper()
	machines := &clusterv1.MachineList{}
	Expect(b.Client.List(ctx, machines, client.InNamespace(c.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name}, client.HasLabels{clusterv1.MachineDeploymentNameLabel})).To(Succeed())
	Expect(machines.Items).To(HaveLen(1))
	return bed.InternalIP(&machines.Items[0])
}

// ask resolves a name from a pod of a workload cluster and returns the response. The pod needs no
// image: it runs the node's own Python.
func ask(ctx context.Context, c bed.Cluster, image, name string) string {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	directory := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "ask-"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "ask", Image: image, ImagePullPolicy: corev1.PullNever,
				Command: []string{"/usr/bin/python3", "-c", `import socket
open("/dev/termination-log", "w").write(socket.gethostbyname("` + name + `"))`},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "usr", MountPath: "/usr", ReadOnly: true},
					{Name: "lib", MountPath: "/lib", ReadOnly: true},
					{Name: "lib64", MountPath: "/lib64", ReadOnly: true},
				},
			}},
			Volumes: []corev1.Volume{directory("usr", "/usr"), directory("lib", "/usr/lib"), directory("lib64", "/usr/lib64")},
		},
	}
	Expect(t.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(t.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses).To(ContainElement(HaveField("State.Terminated", Not(BeNil()))))
	}, reportTimeout).Should(Succeed())
	Expect(t.Delete(ctx, pod)).To(Succeed())
	return pod.Status.ContainerStatuses[0].State.Terminated.Message
}
