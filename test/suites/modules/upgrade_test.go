package modules

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/addons"
	"github.com/nova-platform/cluster-api-provider-nova/test/bed"
	"github.com/nova-platform/cluster-api-provider-nova/test/prober"
)

// probed is a program that is probed while modules are upgraded.
type probed struct {
	// module has the program, in this namespace, with these labels.
	module, namespace string
	labels            map[string]string
	port              int32
	scheme, path      string
	// text is part of each response.
	text string
}

// named returns the label that the charts of most programs set.
func named(name string) map[string]string { return map[string]string{"app.kubernetes.io/name": name} }

// monitoringPrograms returns a program of each module of monitoring.
func monitoringPrograms() []probed {
	return []probed{
		{"descheduler", "nova-descheduler", named("descheduler"), 10258, "https", "/healthz", "ok"},
		{"prometheus-operator", monitoringNS, named("kube-state-metrics"), 8080, "http", "/metrics", "kube_node_info{"},
		{"alertmanager", monitoringNS, named("alertmanager"), 9093, "http", "/api/v2/status", `"version":`},
		{"prometheus", monitoringNS, named("prometheus"), 9090, "http", "/api/v1/query?query=" + url.QueryEscape(operatorUp), `"job":"prometheus-operator"`},
		{"keda", "nova-keda", map[string]string{"app": "keda-operator"}, 8081, "http", "/healthz", "ok"},
	}
}

// ingressPrograms returns a program of each module of ingress that has a port for the state of its program.
func ingressPrograms() []probed {
	return []probed{
		{"cert-manager", "nova-cert-management", named("webhook"), 6080, "http", "/livez", ""},
		{"ingress-internal", ingressNS, map[string]string{"app.kubernetes.io/instance": "ingress-internal"}, 8080, "http", "/ping", "OK"},
		{"external-dns", dnsNS, named("external-dns"), 7979, "http", "/healthz", "OK"},
	}
}

// replacedWith are the modules whose pods are replaced when another one is upgraded: those of Prometheus
// and Alertmanager have a container of the version of the operator.
var replacedWith = map[string][]string{"prometheus-operator": {"prometheus", "alertmanager"}}

// upgrade upgrades one module of the set after the other, as releases of the catalogue do. The programs
// of all other modules answer each request meanwhile. How long the upgraded program itself does not
// answer, with its one replica, is part of the report.
func upgrade(ctx context.Context, c bed.Cluster, s *addonsv1.NovaModuleSet, all []addons.Addon, programs []probed) {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	next, err := b.CatalogueSet(ctx, c.Namespace, s.Spec.Release.Tag, all...)
	Expect(err).NotTo(HaveOccurred())
	checks, probes := map[string]prober.Check{}, map[string]*prober.Prober{}
	for _, program := range programs {
		checks[program.module] = expose(ctx, c, program)
		// A response may take seconds on a slow machine.
		probes[program.module] = prober.Start(context.WithoutCancel(ctx), 500*time.Millisecond, 20*time.Second, checks[program.module])
		DeferCleanup(func() { probes[program.module].Stop() })
	}
	for i, before := range addons.Previous(all) {
		after := all[i]
		if before.Chart.Version == after.Chart.Version {
			continue
		}
		By("upgrading " + before.Module)
		Expect(probes).To(HaveKey(before.Module))
		running, err := readyImages(ctx, t)()
		Expect(err).NotTo(HaveOccurred())
		from := time.Now()
		change(ctx, s, func(spec *addonsv1.NovaModuleSetSpec) {
			is := func(m addonsv1.Module) bool { return m.Name == before.Module }
			spec.Modules[slices.IndexFunc(spec.Modules, is)] = next.Spec.Modules[slices.IndexFunc(next.Spec.Modules, is)]
		})
		was, is := versions(before, after, running)
		Eventually(readyImages(ctx, t), deliverTimeout).Should(And(ContainElements(is), Not(ContainElement(BeElementOf(was)))))
		Eventually(condition(ctx, c, s.Name), deliverTimeout).Should(Equal("True ModulesReady"))
		for _, check := range checks {
			Eventually(check).WithContext(ctx).WithTimeout(deliverTimeout).Should(Succeed())
		}
		for module, p := range probes {
			report := p.Since(from)
			if module == before.Module || slices.Contains(replacedWith[before.Module], module) {
				AddReportEntry(fmt.Sprintf("figure: requests to %s while %s is upgraded", module, before.Module), report.String())
				continue
			}
			Expect(report.Failures).To(BeZero(), "%s while %s is upgraded: %s", module, before.Module, report)
		}
	}
}

// versions returns the running images of a module that an upgrade replaces, and those that replace them. Jobs of
// charts end and run no more.
func versions(before, after addons.Addon, running []string) (was, is []string) {
	GinkgoHelper()
	for _, image := range before.Images {
		if !slices.Contains(running, image.Ref) {
			continue
		}
		repository, _, _ := strings.Cut(image.Ref, ":")
		for _, next := range after.Images {
			if strings.HasPrefix(next.Ref, repository+":") {
				was, is = append(was, image.Ref), append(is, next.Ref)
			}
		}
	}
	Expect(was).NotTo(BeEmpty(), "images of %s", before.Module)
	return was, is
}

// expose creates a Service with a port of the nodes for a program, and returns a check that requests a
// path of it and expects a text in the response. Each request has a new connection to the worker's
// address: the API server of a loaded machine may not respond all the time.
func expose(ctx context.Context, c bed.Cluster, program probed) prober.Check {
	GinkgoHelper()
	t := tenant(ctx, Default, c)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: program.namespace, Name: "probed-" + program.module},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: program.labels, Ports: []corev1.ServicePort{{Port: program.port}},
		},
	}
	Expect(t.Create(ctx, service)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(t.Delete(ctx, service)).To(Succeed()) })
	_, workers, err := b.Machines(ctx, c)
	Expect(err).NotTo(HaveOccurred())
	address := net.JoinHostPort(bed.InternalIP(&workers[0]), strconv.Itoa(int(service.Spec.Ports[0].NodePort)))
	requests := &http.Client{Transport: &http.Transport{
		DialContext: b.Dial, DisableKeepAlives: true,
		// The certificates are for names in the cluster.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // Only the state of the program is read.
	}}
	check := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, program.scheme+"://"+address+program.path, http.NoBody)
		if err != nil {
			return err
		}
		response, err := requests.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err == nil && (response.StatusCode != http.StatusOK || !strings.Contains(string(body), program.text)) {
			err = fmt.Errorf("status %s: %s", response.Status, body)
		}
		return err
	}
	Eventually(check).WithContext(ctx).WithTimeout(reportTimeout).Should(Succeed())
	return check
}

// readyImages returns the images of the containers of all pods that are ready.
func readyImages(ctx context.Context, t client.Client) func() ([]string, error) {
	return func() ([]string, error) {
		pods := &corev1.PodList{}
		if err := t.List(ctx, pods); err != nil {
			return nil, err
		}
		var images []string
		for i := range pods.Items {
			for _, status := range pods.Items[i].Status.ContainerStatuses {
				if status.Ready {
					images = append(images, pods.Items[i].Spec.Containers[slices.IndexFunc(pods.Items[i].Spec.Containers,
						func(c corev1.Container) bool { return c.Name == status.Name })].Image)
				}
			}
		}
		return images, nil
	}
}
