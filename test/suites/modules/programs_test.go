package modules

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// shellImage is the image in which local-path-provisioner runs its scripts.
const shellImage = "docker.io/library/busybox:1.37.0"

func claimOf(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(storageClass),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// shell runs a script in a pod with a claim at /data, deletes the pod, and returns the text that
// the script wrote to /dev/termination-log.
func shell(ctx context.Context, c bed.Cluster, name, claim, script string) string {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: name, Image: shellImage, ImagePullPolicy: corev1.PullNever,
				Command:      []string{"sh", "-euc", script},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
	Expect(t.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(t.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses).To(ContainElement(HaveField("State.Terminated", Not(BeNil()))))
	}, reportTimeout).Should(Succeed())
	Expect(t.Delete(ctx, pod)).To(Succeed())
	ended := pod.Status.ContainerStatuses[0].State.Terminated
	Expect(ended.ExitCode).To(BeZero())
	return strings.TrimSpace(ended.Message)
}

func getVolume(ctx context.Context, t client.Client, name string) error {
	return t.Get(ctx, client.ObjectKey{Name: name}, &corev1.PersistentVolume{})
}

// measured returns the names of the objects of a kind of the metrics API.
func measured(ctx context.Context, c bed.Cluster, kind, namespace string) func() ([]string, error) {
	return func() ([]string, error) {
		t, err := b.TenantClient(ctx, c.Key())
		if err != nil {
			return nil, err
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: kind + "List"})
		if err := t.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		return names, nil
	}
}

// busy is a Deployment that uses all of its processor limit, more than twice its request, and the
// autoscaler that adds a pod because of that. Without the default delay of five minutes it also removes it.
func busy() (*appsv1.Deployment, *autoscalingv2.HorizontalPodAutoscaler) {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "busy"}
	labels := map[string]string{"app": meta.Name}
	load := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: ptr.To(int64(1)),
				Containers: []corev1.Container{{
					Name: meta.Name, Image: shellImage, ImagePullPolicy: corev1.PullNever,
					Command: []string{"sh", "-c", "while :; do :; done"},
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")},
						Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")},
					},
				}},
			},
		},
	}}
	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: meta.Name},
		MaxReplicas:    2,
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To(int32(0))},
		},
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(50))},
		}}},
	}}
	return load, scaler
}

// apiService reads the registration of the metrics API.
func apiService(ctx context.Context, t client.Client) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	return t.Get(ctx, client.ObjectKey{Name: "v1beta1.metrics.k8s.io"}, o)
}

// releases returns Helm's records of a release, in all namespaces.
func releases(ctx context.Context, t client.Client, name string) []corev1.Secret {
	GinkgoHelper()
	secrets := &corev1.SecretList{}
	Expect(t.List(ctx, secrets, client.MatchingLabels{"owner": "helm", "name": name})).To(Succeed())
	return secrets.Items
}
