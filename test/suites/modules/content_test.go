package modules

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// The content of the test's modules is real, with the only image on the hosts that serves requests:
// CoreDNS.

const greetings = `apiVersion: v1
kind: ConfigMap
metadata:
  name: greetings
  namespace: %[1]s
data:
  zone: ${dnsBaseDomain:=none.test}
  cluster: ${clusterId}
  release: %[2]s
  stage: ${stage}
`

const workload = `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  Corefile: |
    .:1053 {
      health :8080
      ready :8181
      template IN A {{ .Values.zone }} {
        answer "{{ "{{ .Name }}" }} 60 IN A {{ .Values.answer }}"
      }
    }
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
spec:
  clusterIP: {{ .Values.serviceIP | default "" | quote }}
  selector: {app: {{ .Release.Name }}}
  ports:
  - {name: dns, port: 53, targetPort: 1053, protocol: UDP}
  - {name: http, port: 80, targetPort: 8080, protocol: TCP}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
      annotations: {zone: {{ .Values.zone | quote }}, answer: {{ .Values.answer | quote }}}
    spec:
      containers:
      - name: serve
        image: {{ .Values.image }}
        imagePullPolicy: Never
        args: [-conf, /etc/coredns/Corefile]
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        volumeMounts: [{name: config, mountPath: /etc/coredns}]
      volumes: [{name: config, configMap: {name: {{ .Release.Name }}}}]
`

const (
	chart    = "answers"
	chartNS  = "answers"
	greetNS  = "greetings"
	answerIP = "192.0.2.53"
)

// publish publishes a release: two paths of Kustomize.
func publish(ctx context.Context, tag string) {
	GinkgoHelper()
	namespace := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n", greetNS)
	Expect(b.Publish(ctx, "release", tag, map[string]string{
		"greetings/namespace.yaml": namespace,
		"greetings/greetings.yaml": fmt.Sprintf(greetings, greetNS, tag),
		"extra/extra.yaml":         fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: extra\n  namespace: %s\ndata: {release: %s}\n", greetNS, tag),
	})).To(Succeed())
}

// set is a set of a path, a chart that depends on it, and a path that depends
// on the chart.
func set(namespace, image string) *addonsv1.NovaModuleSet {
	return &addonsv1.NovaModuleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "base"},
		Spec: addonsv1.NovaModuleSetSpec{
			ClusterSelector: &metav1.LabelSelector{},
			IntervalSeconds: 10,
			Sources: []addonsv1.Source{
				{Name: "release", Git: addonsv1.GitSource{URL: b.GitURL("release"), Access: addonsv1.Access{IntervalSeconds: 10}}},
				{Name: "charts", Helm: addonsv1.HelmSource{URL: b.ChartsURL(), Access: addonsv1.Access{IntervalSeconds: 10}}},
			},
			Release: addonsv1.Release{Tag: "v1"},
			Modules: []addonsv1.Module{
				{
					Name: "greetings", TimeoutSeconds: 60,
					Kustomize: &addonsv1.Kustomize{
						Path:       "greetings",
						Substitute: []addonsv1.Variable{{Name: "stage", Value: ptr.To("{{ .facts.hypervisor.kind }}-{{ .facts.nodes.worker }}")}},
					},
				},
				{
					Name: "answers", Source: "charts", TargetNamespace: chartNS, DependsOn: []string{"greetings"}, TimeoutSeconds: 120,
					Chart: &addonsv1.Chart{Name: chart, Version: "1.0.0", ValuesTemplate: fmt.Sprintf(
						"image: %s\nzone: {{ .facts.cluster.name }}.test\nanswer: %s\n", image, answerIP)},
				},
				{
					Name: "extra", DependsOn: []string{"answers"}, TimeoutSeconds: 60,
					Kustomize: &addonsv1.Kustomize{Path: "extra"},
				},
			},
			Rollout: addonsv1.Rollout{MaxConcurrent: ptr.To(intstr.FromInt32(1))},
			Removal: addonsv1.Removal{TimeoutSeconds: 20},
		},
	}
}
