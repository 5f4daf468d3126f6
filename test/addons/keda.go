package addons

import (
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

const (
	kedaModule = "github.com/kedacore/keda/v2"
	// kedaUser is the user of KEDA's images, whose pods may not run as root.
	kedaUser = "65532"
)

// kedaValues replace texts of KEDA's manifests by the catalogue's values for the chart.
var kedaValues = []string{
	":latest\n", ":{{ .Chart.AppVersion }}\n",
	"imagePullPolicy: Always\n", "imagePullPolicy: {{ .Values.image.pullPolicy }}\n",
	"      nodeSelector:\n        kubernetes.io/os: linux\n", `      nodeSelector: {{ toJson .Values.nodeSelector }}
      tolerations: {{ toJson .Values.tolerations }}
      priorityClassName: {{ .Values.priorityClassName }}
`,
	"            - --enable-cert-rotation=true\n", `            - --enable-cert-rotation=true
            - --k8s-cluster-name={{ .Values.clusterName }}
            - --k8s-cluster-domain={{ .Values.clusterDomain }}
`,
	"          - --secure-port=6443\n", `          - --secure-port=6443
          - --metrics-service-address=keda-operator.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:9666
`,
}

// kedaAddon returns KEDA in a version that a folder of hack/tools pins, and whose programs have a suffix.
// The chart that the catalogue uses is in no Go module: the manifests are those of KEDA's own module.
func kedaAddon(version, suffix, tools string) Addon {
	addon := Addon{Module: "keda"}
	for _, program := range []string{"keda", "keda-adapter", "keda-admission-webhooks"} {
		image := strings.Replace(program, "-adapter", "-metrics-apiserver", 1)
		addon.Images = append(addon.Images, host.Image{
			Ref: "ghcr.io/kedacore/" + image + ":" + version, Program: program + suffix, Path: "/" + program, User: kedaUser,
		})
	}
	manifests := []Manifests{{Module: kedaModule, Path: "config/crd/bases"}}
	for _, folder := range []string{"service_account", "rbac", "manager", "metrics-server", "webhooks"} {
		manifests = append(manifests, Manifests{
			Module: kedaModule, Path: "config/" + folder, Namespace: "keda", Replace: kedaValues, Without: []string{"kustomization.yaml"},
		})
	}
	addon.Chart = Chart{Name: "keda", Version: version, AppVersion: version, Tools: tools, Composed: &Composition{Manifests: manifests}}
	return addon
}
