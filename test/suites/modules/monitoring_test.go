package modules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
)

const (
	monitoringNS = "nova-monitoring"
	operatorUp   = `up{job="prometheus-operator"}`
	// stateMetricsUp has one series: no upgrade here replaces its pod.
	stateMetricsUp = `up{job="kube-state-metrics"}`
)

// monitoring returns the modules of the set platform whose programs are built for the full suite, and
// the module that has the volume of Prometheus.
func monitoring() []addons.Addon {
	GinkgoHelper()
	all, err := addons.Select("local-path", "prometheus-operator", "alertmanager", "prometheus", "descheduler", "keda")
	Expect(err).NotTo(HaveOccurred())
	return all
}

func init() {
	// Its programs take minutes to build, so they run only where all suites run.
	if everything {
		Describe("Monitoring and operations", Ordered, describeMonitoring)
	}
}

func describeMonitoring() {
	c := bed.Cluster{Name: "watched", Namespace: "watched", ControlPlanes: 1, Workers: 1, Endpoint: "10.77.0.44"}
	var (
		s      *addonsv1.NovaModuleSet
		broken *appsv1.Deployment
		worker *appsv1.Deployment
		rule   *unstructured.Unstructured
		before []string
	)

	It("are delivered with the values of the catalogue", func(ctx context.Context) {
		Expect(b.Create(ctx, c)).To(Succeed())
		Expect(b.PublishCatalogue(ctx, "monitoring")).To(Succeed())
		var err error
		Eventually(func() error { return b.CheckCluster(ctx, c) }, bootTimeout).Should(Succeed())
		before, err = inventory(ctx, c)
		Expect(err).NotTo(HaveOccurred())
		s, err = b.CatalogueSet(ctx, c.Namespace, "monitoring", addons.Previous(monitoring())...)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Client.Create(ctx, s)).To(Succeed())
		Eventually(condition(ctx, c, s.Name), bootTimeout).Should(Equal("True ModulesReady"))
	})

	It("scrape the targets of ServiceMonitors", func(ctx context.Context) {
		for _, expression := range []string{operatorUp, stateMetricsUp} {
			Eventually(query(ctx, c, expression), deliverTimeout).Should(ConsistOf(HaveField("Value", 1.0)))
		}

		By("reading a metric of an object of the cluster")
		Eventually(query(ctx, c, `kube_node_status_condition{condition="Ready",status="true"} == 1`), reportTimeout).Should(HaveLen(2))
	})

	It("send an alert to Alertmanager", func(ctx context.Context) {
		t := tenant(ctx, Default, c)
		broken, rule = idle("broken"), &unstructured.Unstructured{}
		broken.Spec.Template.Spec.Containers[0].Image = "registry.test/none:v1"
		Expect(t.Create(ctx, broken)).To(Succeed())
		Expect(json.Unmarshal([]byte(`{"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
			"metadata": {"namespace": "default", "name": "unavailable"},
			"spec": {"groups": [{"name": "unavailable", "interval": "5s", "rules": [{"alert": "Unavailable",
				"expr": "kube_deployment_status_replicas_unavailable{deployment=\"broken\"} > 0", "labels": {"severity": "critical"}}]}]}}`), rule)).To(Succeed())
		Expect(t.Create(ctx, rule)).To(Succeed())
		Eventually(alerts(ctx, c), deliverTimeout).Should(ContainElement(unavailable(c)))
	})

	It("scale a Deployment from zero by a query of Prometheus", func(ctx context.Context) { worker = scaleUp(ctx, c) })

	It("upgrade each module by a version while the programs of all others answer", func(ctx context.Context) {
		t := tenant(ctx, Default, c)
		then := strconv.FormatInt(time.Now().Unix(), 10)
		samples, err := query(ctx, c, operatorUp, then)()
		Expect(err).NotTo(HaveOccurred())
		upgrade(ctx, c, s, monitoring(), monitoringPrograms())
		Eventually(query(ctx, c, operatorUp, then), reportTimeout).Should(Equal(samples), "metrics from before the upgrade")
		Eventually(alerts(ctx, c), deliverTimeout).Should(ContainElement(unavailable(c)))

		By("ending the alert with its cause")
		Expect(t.Delete(ctx, broken)).To(Succeed())
		Eventually(query(ctx, c, `ALERTS{alertname="Unavailable"}`), deliverTimeout).Should(BeEmpty())
		Expect(t.Delete(ctx, rule)).To(Succeed())
	})

	It("scale the Deployment to zero", func(ctx context.Context) { scaleDown(ctx, c, worker) })

	It("keep the metrics when the pod of Prometheus is replaced", func(ctx context.Context) {
		t, before := tenant(ctx, Default, c), &corev1.Pod{}
		key := client.ObjectKey{Namespace: monitoringNS, Name: "prometheus-nova-prometheus-0"}
		Expect(t.Get(ctx, key, before)).To(Succeed())
		then := strconv.FormatInt(time.Now().Unix(), 10)
		samples, err := query(ctx, c, stateMetricsUp, then)()
		Expect(err).NotTo(HaveOccurred())
		Expect(samples).To(HaveLen(1))
		Expect(t.Delete(ctx, before)).To(Succeed())
		Eventually(func(g Gomega) {
			after := &corev1.Pod{}
			g.Expect(t.Get(ctx, key, after)).To(Succeed())
			g.Expect(after.UID).NotTo(Equal(before.UID))
			g.Expect(after.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
		}, deliverTimeout).Should(Succeed())
		Eventually(query(ctx, c, stateMetricsUp, then), reportTimeout).Should(Equal(samples))
	})

	It("evict pods from a node with a taint", func(ctx context.Context) {
		t := tenant(ctx, Default, c)
		load := idle("evicted")
		Expect(t.Create(ctx, load)).To(Succeed())
		var pod corev1.Pod
		Eventually(func(g Gomega) {
			pods := podsOf(ctx, g, t, load)
			g.Expect(pods).To(ConsistOf(HaveField("Status.Phase", corev1.PodRunning)))
			pod = pods[0]
		}, reportTimeout).Should(Succeed())
		node := &corev1.Node{}
		Expect(t.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)).To(Succeed())
		before := node.DeepCopy()
		// The pods of the platform tolerate this taint.
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "node-role.kubernetes.io/infra", Effect: corev1.TaintEffectNoSchedule})
		Expect(t.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())

		By("starting the descheduler again, which looks at all pods at once and then every five minutes")
		Expect(t.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("nova-descheduler"))).To(Succeed())
		Eventually(func() error { return t.Get(ctx, client.ObjectKeyFromObject(&pod), &corev1.Pod{}) }, deliverTimeout).
			Should(Satisfy(apierrors.IsNotFound))
		Expect(t.Delete(ctx, load)).To(Succeed())
		Expect(t.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		tainted := node.DeepCopy()
		node.Spec.Taints = before.Spec.Taints
		Expect(t.Patch(ctx, node, client.MergeFrom(tainted))).To(Succeed())
	})

	It("leave claims and CustomResourceDefinitions when the set is deleted", func(ctx context.Context) {
		t := tenant(ctx, Default, c)
		Expect(b.Client.Delete(ctx, s)).To(Succeed())
		Eventually(func() error { return b.Client.Get(ctx, client.ObjectKeyFromObject(s), s) }, deliverTimeout).Should(Satisfy(apierrors.IsNotFound))
		Expect(written(ctx, c)()).To(BeZero())
		for _, a := range monitoring() {
			Expect(releases(ctx, t, a.Module)).To(BeEmpty(), "records of Helm")
		}
		claims := &corev1.PersistentVolumeClaimList{}
		Expect(t.List(ctx, claims, client.InNamespace(monitoringNS))).To(Succeed())
		Expect(claims.Items).To(ConsistOf(HaveField("Status.Phase", corev1.ClaimBound)), "the claim of Prometheus")
		Eventually(added(ctx, c, before), reportTimeout).Should(ConsistOf(append(remainingOfMonitoring(),
			"PersistentVolume /"+claims.Items[0].Spec.VolumeName, "PersistentVolumeClaim "+monitoringNS+"/"+claims.Items[0].Name)))
		Expect(b.Client.Delete(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}})).To(Succeed())
	})
}

// remainingOfMonitoring are the objects that stay when the set is deleted, without the volume of
// Prometheus: those of namespaces, CustomResourceDefinitions with their API, the Service of the
// kubelets with its Endpoints, which Prometheus' operator creates, and the Secret with KEDA's certificates.
func remainingOfMonitoring() []string {
	names := slices.Clone(remaining)
	for _, ns := range []string{monitoringNS, "nova-descheduler", "nova-keda"} {
		names = append(names, "Namespace /"+ns, "ConfigMap "+ns+"/kube-root-ca.crt", "ServiceAccount "+ns+"/default")
	}
	for _, kind := range []string{
		"alertmanagerconfigs", "alertmanagers", "podmonitors", "probes", "prometheusagents", "prometheuses",
		"prometheusrules", "scrapeconfigs", "servicemonitors", "thanosrulers",
	} {
		names = append(names, "CustomResourceDefinition /"+kind+".monitoring.coreos.com")
	}
	for _, kind := range []string{
		"cloudeventsources.eventing", "clustercloudeventsources.eventing", "clustertriggerauthentications", "scaledjobs", "scaledobjects",
		"triggerauthentications",
	} {
		names = append(names, "CustomResourceDefinition /"+kind+".keda.sh")
	}
	return append(names, "APIService /v1.monitoring.coreos.com", "APIService /v1alpha1.monitoring.coreos.com",
		"APIService /v1alpha1.keda.sh", "APIService /v1alpha1.eventing.keda.sh",
		"Service kube-system/kubelet", "Endpoints kube-system/kubelet", "Secret nova-keda/kedaorg-certs")
}

// unavailable matches the labels of the alert about the Deployment broken.
func unavailable(c bed.Cluster) types.GomegaMatcher {
	return And(HaveKeyWithValue("alertname", "Unavailable"), HaveKeyWithValue("severity", "critical"),
		HaveKeyWithValue("namespace", "default"), HaveKeyWithValue("cluster", c.Name))
}

// sample is one value of a query's result.
type sample struct {
	Labels map[string]string
	Value  float64
}

// query sends a request to Prometheus in a workload cluster, through the cluster's API server. A time evaluates the
// expression then and not now.
func query(ctx context.Context, c bed.Cluster, expression string, at ...string) func() ([]sample, error) {
	parameters := map[string]string{"query": expression}
	for _, time := range at {
		parameters["time"] = time
	}
	return func() ([]sample, error) {
		var response struct {
			Data struct {
				Result []struct {
					Metric map[string]string `json:"metric"`
					Value  [2]any            `json:"value"`
				} `json:"result"`
			} `json:"data"`
		}
		err := getJSON(ctx, c, "prometheus-operated", "9090", "/api/v1/query", parameters, &response)
		if err != nil {
			return nil, err
		}
		samples := make([]sample, 0, len(response.Data.Result))
		for _, r := range response.Data.Result {
			value, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
			if err != nil {
				return nil, fmt.Errorf("reading value: %w", err)
			}
			samples = append(samples, sample{Labels: r.Metric, Value: value})
		}
		return samples, nil
	}
}

// alerts returns the labels of the alerts that Alertmanager has.
func alerts(ctx context.Context, c bed.Cluster) func() ([]map[string]string, error) {
	return func() ([]map[string]string, error) {
		var response []struct {
			Labels map[string]string `json:"labels"`
		}
		if err := getJSON(ctx, c, "nova-alertmanager", "http-web", "/api/v2/alerts", nil, &response); err != nil {
			return nil, err
		}
		var labels []map[string]string
		for _, alert := range response {
			labels = append(labels, alert.Labels)
		}
		return labels, nil
	}
}

// getJSON sends a request to a Service of the monitoring, through the API server of its cluster.
func getJSON(ctx context.Context, c bed.Cluster, service, port, path string, parameters map[string]string, into any) error {
	config, err := b.TenantConfig(ctx, c.Key())
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	data, err := clients.CoreV1().Services(monitoringNS).ProxyGet("http", service, port, path, parameters).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("asking %s: %w", service, err)
	}
	return json.Unmarshal(data, into)
}

// idle is a Deployment of one pod that does nothing.
func idle(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To(int64(1)),
					Containers: []corev1.Container{{
						Name: name, Image: shellImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "infinity"},
					}},
				},
			},
		},
	}
}

// podsOf returns the pods of a Deployment.
func podsOf(ctx context.Context, g Gomega, t client.Client, d *appsv1.Deployment) []corev1.Pod {
	pods := &corev1.PodList{}
	g.Expect(t.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))).To(Succeed())
	return pods.Items
}
