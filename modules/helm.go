package modules

import (
	"encoding/json"
	"fmt"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/fluxcd/pkg/apis/meta"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// remediations is the number of attempts of a module with remediation.
const remediations = 3

// helmRelease renders a chart.
func (r *renderer) helmRelease(m *addonsv1.Module, ref addonsv1.SourceReference, native []string) (client.Object, error) {
	values := map[string]any{}
	if err := r.values(m.Chart, values); err != nil {
		return nil, err
	}
	inline, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("encoding values: %w", err)
	}
	timeout := metav1.Duration{Duration: m.Timeout()}
	out := &helmv2.HelmRelease{
		ObjectMeta: r.meta(m),
		Spec: helmv2.HelmReleaseSpec{
			Interval: metav1.Duration{Duration: r.interval()}, Timeout: &timeout,
			// The release keeps its name when the Cluster moves to another
			// management cluster, so that Flux adopts it and does not install
			// it again.
			ReleaseName: m.Name, TargetNamespace: releaseNamespace(m), StorageNamespace: releaseNamespace(m),
			ServiceAccountName: m.ServiceAccount(), KubeConfig: r.kubeConfig(m),
			Suspend: ptr.Deref(m.Suspend, false), Values: &apiextensionsv1.JSON{Raw: inline},
			DriftDetection: &helmv2.DriftDetection{Mode: driftMode(m.Drift.Policy)},
			Install:        &helmv2.Install{CreateNamespace: m.InWorkloadCluster(), CRDs: helmv2.CreateReplace},
			Upgrade:        &helmv2.Upgrade{CRDs: helmv2.CreateReplace},
		},
	}
	out.SetGroupVersionKind(helmv2.GroupVersion.WithKind(helmv2.HelmReleaseKind))
	if !m.InWorkloadCluster() {
		out.Spec.TargetNamespace, out.Spec.StorageNamespace = r.target.Namespace, r.target.Namespace
		// The name of the object is unique to this module, so the release name
		// is, too.
		out.Spec.ReleaseName = shortenedTo(out.Name, maxRelease)
	}
	for _, rule := range m.Drift.Ignore {
		out.Spec.DriftDetection.Ignore = append(out.Spec.DriftDetection.Ignore, helmv2.IgnoreRule{Paths: rule.Paths, Target: selector(rule.Target)})
	}
	setChart(m.Chart, ref, out)
	setFailureStrategy(m.OnFailure, r.retryInterval(), out)
	for _, name := range native {
		out.Spec.DependsOn = append(out.Spec.DependsOn, helmv2.DependencyReference{Name: name})
	}
	for _, v := range m.Chart.ValuesFrom {
		out.Spec.ValuesFrom = append(out.Spec.ValuesFrom, meta.ValuesReference{
			Kind: v.Kind, Name: v.Name, ValuesKey: v.Key, TargetPath: v.TargetPath, Optional: ptr.Deref(v.Optional, false),
		})
	}
	out.Spec.HealthCheckExprs = expressions(m.HealthExpressions)
	return out, nil
}

// maxRelease is the maximum length of a Helm release name.
const maxRelease = 53

func shortenedTo(name string, length int) string {
	if len(name) <= length {
		return name
	}
	sum := digest([]byte(name))
	return name[:length-len(sum)-1] + "-" + sum
}

// setChart sets the source of the chart.
func setChart(chart *addonsv1.Chart, ref addonsv1.SourceReference, out *helmv2.HelmRelease) {
	if ref.Kind == addonsv1.OCIRepository {
		out.Spec.ChartRef = &helmv2.CrossNamespaceSourceReference{Kind: string(ref.Kind), Name: ref.Name, Namespace: ref.Namespace}
		return
	}
	out.Spec.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{
		Chart: chart.Name, Version: chart.Version,
		SourceRef: helmv2.CrossNamespaceObjectReference{Kind: string(ref.Kind), Name: ref.Name, Namespace: ref.Namespace},
	}}
	if ref.Kind != addonsv1.HelmRepository {
		// The chart's own version rarely changes there, but the commit does.
		out.Spec.Chart.Spec.ReconcileStrategy = "Revision"
	}
}

// setFailureStrategy sets the strategy after a failed attempt. Without a strategy Flux
// uninstalls the release between attempts, which would remove the network with
// the CNI.
func setFailureStrategy(policy addonsv1.FailurePolicy, retry time.Duration, out *helmv2.HelmRelease) {
	if policy == addonsv1.FailureRemediate {
		out.Spec.Install.Remediation = &helmv2.InstallRemediation{Retries: -1}
		out.Spec.Upgrade.Remediation = &helmv2.UpgradeRemediation{Retries: remediations}
		return
	}
	again := &metav1.Duration{Duration: retry}
	out.Spec.Install.Strategy = &helmv2.InstallStrategy{Name: string(helmv2.ActionStrategyRetryOnFailure), RetryInterval: again}
	out.Spec.Upgrade.Strategy = &helmv2.UpgradeStrategy{Name: string(helmv2.ActionStrategyRetryOnFailure), RetryInterval: again}
}

func driftMode(p addonsv1.DriftPolicy) helmv2.DriftDetectionMode {
	switch p {
	case addonsv1.DriftIgnore:
		return helmv2.DriftDetectionDisabled
	case addonsv1.DriftWarn:
		return helmv2.DriftDetectionWarn
	default:
		return helmv2.DriftDetectionEnabled
	}
}

// values merges inline values with those of the template; the template takes
// precedence.
func (r *renderer) values(c *addonsv1.Chart, merged map[string]any) error {
	if c.Values != nil && len(c.Values.Raw) > 0 {
		if err := json.Unmarshal(c.Values.Raw, &merged); err != nil {
			return fmt.Errorf("values: must be an object: %w", err)
		}
	}
	text, err := r.executeTemplate(c.ValuesTemplate)
	if err != nil {
		return fmt.Errorf("valuesTemplate: %w", err)
	}
	if err := withoutAliases(text); err != nil {
		return fmt.Errorf("valuesTemplate: %w", err)
	}
	over := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &over); err != nil {
		return fmt.Errorf("valuesTemplate: the rendered text is not a YAML object: %s", oneLine(err))
	}
	merge(merged, over)
	return nil
}

// withoutAliases rejects a document with aliases: each alias repeats its
// anchor, so a small document may expand to gigabytes.
func withoutAliases(text string) error {
	document := &goyaml.Node{}
	if err := goyaml.Unmarshal([]byte(text), document); err != nil {
		return fmt.Errorf("the rendered text is not a YAML object: %s", oneLine(err))
	}
	rest := []*goyaml.Node{document}
	for len(rest) > 0 {
		node := rest[len(rest)-1]
		if node.Kind == goyaml.AliasNode {
			return fmt.Errorf("the rendered text has the alias *%s in line %d: aliases are not allowed", node.Value, node.Line)
		}
		rest = append(rest[:len(rest)-1], node.Content...)
	}
	return nil
}

// merge merges over into base, object by object, as Helm does.
func merge(base, over map[string]any) {
	for key, value := range over {
		below, isObject := base[key].(map[string]any)
		above, isObjectToo := value.(map[string]any)
		if isObject && isObjectToo {
			merge(below, above)
			continue
		}
		base[key] = value
	}
}
