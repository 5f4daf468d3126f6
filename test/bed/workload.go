package bed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Where the workload is and how it is reached.
const (
	workloadName      = "workload"
	workloadNamespace = "default"
	workloadPort      = 8080
	workloadNodePort  = 30080
	workloadReplicas  = 2
	// nodeTimeout is how soon a balancer in front of the nodes tries the next.
	nodeTimeout = 300 * time.Millisecond
	// refreshInterval is how often it learns which nodes there are.
	refreshInterval = 2 * time.Second
)

// workloadCorefile answers GET /health, and continues to serve for a while
// after a termination request, until load balancers have detected it.
const workloadCorefile = ".:1053 {\n  health :8080 {\n    lameduck 5s\n  }\n}\n"

// Workload is a service in a tenant that is reached from outside, at a port of
// the nodes, through a balancer that tries another node when one is silent. It is on
// the workers, or on the control plane nodes if there are no workers.
type Workload struct {
	bed     *Bed
	cluster Cluster

	mu        sync.Mutex
	nodes     []string
	next      int
	refreshed time.Time
}

// DeployWorkload runs a service in a tenant and waits until it answers. Its image is
// that of the tenant's own CoreDNS: there is no other on hosts that answers anything.
func (b *Bed) DeployWorkload(ctx context.Context, c Cluster) (*Workload, error) {
	w := &Workload{bed: b, cluster: c}
	err := await(ctx, 3*time.Minute, "deploying a workload to "+c.Name, func(ctx context.Context) error {
		tenant, err := b.TenantClient(ctx, c.Key())
		if err != nil {
			return err
		}
		dns := &appsv1.Deployment{}
		if err := tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, dns); err != nil {
			return err
		}
		for _, object := range workloadObjects(dns.Spec.Template.Spec.Containers[0].Image, c.Workers == 0) {
			// A port of nodes that is taken, by the very Service, is another
			// error than a name that is.
			err := tenant.Get(ctx, client.ObjectKeyFromObject(object), object)
			if apierrors.IsNotFound(err) {
				err = tenant.Create(ctx, object)
			}
			if err != nil {
				return err
			}
		}
		deployment := &appsv1.Deployment{}
		if err := tenant.Get(ctx, client.ObjectKey{Namespace: workloadNamespace, Name: workloadName}, deployment); err != nil {
			return err
		}
		if deployment.Status.AvailableReplicas < workloadReplicas {
			return fmt.Errorf("%d of %d pods are available", deployment.Status.AvailableReplicas, workloadReplicas)
		}
		return w.Check(ctx)
	})
	return w, err
}

func workloadObjects(image string, controlPlane bool) []client.Object {
	meta := metav1.ObjectMeta{Namespace: workloadNamespace, Name: workloadName}
	labels := map[string]string{"app": workloadName}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	soon := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(5))}
	}
	container := corev1.Container{
		Name: workloadName, Image: image, ImagePullPolicy: corev1.PullNever,
		Args:         []string{"-conf", "/etc/" + workloadName + "/Corefile"},
		Ports:        []corev1.ContainerPort{{ContainerPort: workloadPort}},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/" + workloadName}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(workloadPort)}},
			PeriodSeconds: 1,
		},
	}
	pod := corev1.PodSpec{
		Containers:  []corev1.Container{container},
		Tolerations: []corev1.Toleration{soon(corev1.TaintNodeNotReady), soon(corev1.TaintNodeUnreachable)},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector,
		}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: workloadName}},
		}}},
	}
	if controlPlane {
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists})
	}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": workloadCorefile}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(workloadReplicas)), Selector: selector,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: selector,
		}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: labels,
			Ports: []corev1.ServicePort{{Port: workloadPort, NodePort: workloadNodePort}},
		}},
	}
}

// Check sends one request to the service. It fails if no node responds in time.
func (w *Workload) Check(ctx context.Context) error {
	nodes := w.targets(ctx)
	err := fmt.Errorf("no nodes of %s are known", w.cluster.Name)
	for _, node := range nodes {
		if err = w.ask(ctx, node); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (w *Workload) ask(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort(node, strconv.Itoa(workloadNodePort)) + "/health"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	direct := &http.Client{Transport: &http.Transport{DialContext: w.bed.Dial, DisableKeepAlives: true}}
	response, err := direct.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responds with %s", url, response.Status)
	}
	return nil
}

// targets are the nodes' addresses, each time beginning with another. While
// the management cluster does not answer they are those from before.
func (w *Workload) targets(ctx context.Context) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.refreshed) > refreshInterval {
		machines := &clusterv1.MachineList{}
		if err := w.bed.Client.List(ctx, machines, client.InNamespace(w.cluster.Namespace)); err == nil {
			w.nodes = nil
			for i := range machines.Items {
				_, controlPlane := machines.Items[i].Labels[clusterv1.MachineControlPlaneLabel]
				if address := InternalIP(&machines.Items[i]); address != "" && controlPlane == (w.cluster.Workers == 0) {
					w.nodes = append(w.nodes, address)
				}
			}
		}
		w.refreshed = time.Now()
	}
	if len(w.nodes) == 0 {
		return nil
	}
	w.next = (w.next + 1) % len(w.nodes)
	return append(append([]string{}, w.nodes[w.next:]...), w.nodes[:w.next]...)
}

// InternalIP returns a machine's address, empty if it has none yet.
func InternalIP(machine *clusterv1.Machine) string {
	for _, address := range machine.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			return address.Address
		}
	}
	return ""
}
