package modules

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

// scaledObject scales a Deployment by the number of ConfigMaps with a name, which Prometheus reads from
// kube-state-metrics.
func scaledObject(name string, d *appsv1.Deployment) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(json.Unmarshal(fmt.Appendf(nil, `{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"namespace": %q, "name": %q},
		"spec": {"scaleTargetRef": {"name": %q}, "pollingInterval": 5, "cooldownPeriod": 5, "minReplicaCount": 0, "maxReplicaCount": 3,
			"advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}},
			"triggers": [{"type": "prometheus", "metadata": {"serverAddress": "http://prometheus-operated.%s.svc:9090", "threshold": "1",
				"query": "sum(kube_configmap_info{namespace=\"default\",configmap=~\"work-.*\"}) or vector(0)"}}]}}`,
		d.Namespace, name, d.Name, monitoringNS), object)).To(Succeed())
	return object
}

// work is a ConfigMap that scaledObject counts.
func work(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("work-%d", i)}}
}

// scaledStatus reads the status of a Deployment.
func scaledStatus(ctx context.Context, t client.Client, d *appsv1.Deployment) func(Gomega) appsv1.DeploymentStatus {
	return func(g Gomega) appsv1.DeploymentStatus {
		g.Expect(t.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		return d.Status
	}
}

// scaleUp scales a Deployment from zero to three pods by a query of Prometheus. KEDA itself starts the
// first pod; the autoscaler of Kubernetes does the rest, with the metric of KEDA's API server.
func scaleUp(ctx context.Context, c bed.Cluster) *appsv1.Deployment {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	worker := idle("worker")
	worker.Spec.Replicas = ptr.To(int32(0))
	Expect(t.Create(ctx, worker)).To(Succeed())
	Expect(t.Create(ctx, scaledObject(worker.Name, worker))).To(Succeed())
	for i := range 3 {
		Expect(t.Create(ctx, work(i))).To(Succeed())
	}
	Eventually(scaledStatus(ctx, t, worker), deliverTimeout).Should(HaveField("ReadyReplicas", BeEquivalentTo(3)))
	autoscaler := &autoscalingv2.HorizontalPodAutoscaler{}
	Expect(t.Get(ctx, client.ObjectKey{Namespace: worker.Namespace, Name: "keda-hpa-" + worker.Name}, autoscaler)).To(Succeed())
	Expect(autoscaler.Status.CurrentMetrics).To(ContainElement(HaveField("Type", autoscalingv2.ExternalMetricSourceType)))

	By("creating another ScaledObject for the same Deployment, which the admission webhook refuses")
	Expect(t.Create(ctx, scaledObject("second", worker))).To(MatchError(ContainSubstring("already managed")))
	return worker
}

// scaleDown removes the work of scaleUp. The autoscaler of Kubernetes leaves one pod, which KEDA removes.
func scaleDown(ctx context.Context, c bed.Cluster, worker *appsv1.Deployment) {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	Expect(t.Delete(ctx, work(0))).To(Succeed())
	Expect(t.Delete(ctx, work(1))).To(Succeed())
	Eventually(scaledStatus(ctx, t, worker), deliverTimeout).Should(HaveField("Replicas", BeEquivalentTo(1)))
	Expect(t.Delete(ctx, work(2))).To(Succeed())
	Eventually(scaledStatus(ctx, t, worker), deliverTimeout).Should(HaveField("Replicas", BeZero()))

	By("deleting the ScaledObject, whose finalizer KEDA removes")
	object := scaledObject(worker.Name, worker)
	Expect(t.Delete(ctx, object)).To(Succeed())
	Eventually(func() error { return t.Get(ctx, client.ObjectKeyFromObject(object), object) }, reportTimeout).Should(Satisfy(apierrors.IsNotFound))
	Expect(t.Delete(ctx, worker)).To(Succeed())
}
