package files

import (
	"fmt"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/provider"
)

// section is a part of a file that has lines of each provider.
type section struct {
	file string
	// begin is the text before the part, and end the text after it. If end is
	// empty, the part ends with the file.
	begin, end string
	lines      func(*provider.Info) string
}

// namespace is the element of a list of the managers' namespaces.
func namespace(p *provider.Info) string { return "- " + p.Manager() + "-system\n" }

// metrics is the configuration of kube-state-metrics for the kinds of a
// provider.
const metrics = `    - groupVersionKind:
        group: infrastructure.cluster.x-k8s.io
        version: v1beta2
        kind: %[1]sCluster
      metricNamePrefix: capi_novacluster
      labelsFromPath:
        namespace: [metadata, namespace]
        name: [metadata, name]
        cluster: [metadata, labels, cluster.x-k8s.io/cluster-name]
      metrics:
        - name: info
          help: An infrastructure cluster, with its hypervisor and the version of it.
          each:
            type: Info
            info:
              labelsFromPath:
                server: [status, server]
                version: [status, version]
        - name: status_condition
          help: Status of the conditions, 1 is True, 0 is False or Unknown.
          each:
            type: Gauge
            gauge:
              path: [status, conditions]
              labelsFromPath:
                condition: [type]
              valueFrom: [status]
    - groupVersionKind:
        group: infrastructure.cluster.x-k8s.io
        version: v1beta2
        kind: %[1]sMachine
      metricNamePrefix: capi_novamachine
      labelsFromPath:
        namespace: [metadata, namespace]
        name: [metadata, name]
        cluster: [metadata, labels, cluster.x-k8s.io/cluster-name]
      metrics:
        - name: info
          help: An infrastructure machine, with the host and failure domain of its VM.
          each:
            type: Info
            info:
              labelsFromPath:
                host: [status, host]
                failure_domain: [status, failureDomain]
`

var sections = []section{
	{
		"config/monitoring/podmonitor.yaml", "    matchNames:\n", "      - nova-bootstrap-system\n",
		func(p *provider.Info) string { return indent(6, namespace(p)) },
	},
	{
		"config/monitoring/scrape.yaml", "          names:\n", "            - nova-bootstrap-system\n",
		func(p *provider.Info) string { return indent(12, namespace(p)) },
	},
	{
		"config/monitoring/kube-state-metrics.yaml", "  - apiGroups: [infrastructure.cluster.x-k8s.io]\n    resources:\n", "    verbs: ",
		func(p *provider.Info) string {
			return indent(6, "- "+p.Resource("Cluster")+"\n- "+p.Resource("Machine")+"\n")
		},
	},
	{
		"config/monitoring/custom-resource-state.yaml", "    # name no hypervisor.\n", "    # The kinds of the add-on provider.\n",
		func(p *provider.Info) string { return fmt.Sprintf(metrics, p.Kind) },
	},
	{
		"templates/flavors/autoscaled/autoscaler.yaml", "  # The capacity of a node in a group without nodes.\n  - apiGroups: [infrastructure.cluster.x-k8s.io]\n    resources:\n", "    verbs: ",
		func(p *provider.Info) string { return indent(6, "- "+p.Resource("MachineTemplate")+"\n") },
	},
	{
		"modules/catalogue/access/namespace.yaml", "- apiGroups: [infrastructure.cluster.x-k8s.io]\n  resources:\n", "  verbs: ",
		func(p *provider.Info) string { return indent(2, "- "+p.Resource("MachineTemplate")+"\n") },
	},
}

// replace returns the text of the file with the lines of these providers.
func (s section) replace(text string, providers []*provider.Info) (string, error) {
	before, rest, found := strings.Cut(text, s.begin)
	after, end := "", true
	if s.end != "" {
		_, after, end = strings.Cut(rest, s.end)
	}
	if !found || !end {
		return "", fmt.Errorf("%s has no section between %q and %q", s.file, s.begin, s.end)
	}
	var lines strings.Builder
	for _, p := range providers {
		lines.WriteString(s.lines(p))
	}
	return before + s.begin + lines.String() + s.end + after, nil
}

// indent indents each line that is not empty.
func indent(by int, text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			out.WriteString(strings.Repeat(" ", by))
		}
		out.WriteString(line)
	}
	return out.String()
}
