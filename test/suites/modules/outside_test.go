package modules

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// requestTimeout is the timeout of a request from outside of the cluster. A request to an address
// that no node announces gets no response.
const requestTimeout = 5 * time.Second

var serverLabels = map[string]string{"app": "server"}

// server is a workload that responds with OK to GET /health.
func server(image string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "server"}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": ".:1053 {\n  health :8080\n  ready :8181\n}\n"}},
		serviceOf("server", corev1.ServiceTypeClusterIP),
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: serverLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: serverLabels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: "serve", Image: image, ImagePullPolicy: corev1.PullNever,
						Args: []string{"-conf", "/etc/coredns/Corefile"},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
							HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8181)},
						}},
						VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/coredns"}},
					}},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name},
					}}}},
				},
			},
		}},
	}
}

// serviceOf is a Service of the workload.
func serviceOf(name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.ServiceSpec{
			Type: kind, Selector: serverLabels,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// get requests a URL from outside of the workload cluster, through the network of the hosts, and
// returns the content or the text of an error. It connects to address, whatever the name in the URL
// is, and verifies certificates with roots.
func get(ctx context.Context, url, address string, roots *x509.CertPool) func() string {
	return func() string {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err.Error()
		}
		transport := &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(to)
				if err != nil {
					return nil, err
				}
				return b.Dial(ctx, network, net.JoinHostPort(address, port))
			},
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		content, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		if err != nil {
			return err.Error()
		}
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return string(content)
	}
}
