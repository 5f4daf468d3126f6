package modules

import (
	"fmt"
	"strings"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// retryInterval is the interval between attempts after a failure, unless the
// interval of the set is shorter.
const retryInterval = time.Minute

// kustomization renders a Kustomize path.
func (r *renderer) kustomization(m *addonsv1.Module, ref addonsv1.SourceReference, native []string, of *Module) (client.Object, error) {
	variables, err := r.variables(m.Kustomize, m.InWorkloadCluster())
	if err != nil {
		return nil, err
	}
	of.Place = r.content.place(m)
	timeout := metav1.Duration{Duration: m.Timeout()}
	prune := ptr.Deref(m.Kustomize.Prune, true)
	out := &kustomizev1.Kustomization{
		ObjectMeta: r.meta(m),
		Spec: kustomizev1.KustomizationSpec{
			Interval: metav1.Duration{Duration: r.interval()}, RetryInterval: &metav1.Duration{Duration: r.retryInterval()},
			Timeout: &timeout, Path: "./" + strings.TrimPrefix(strings.TrimPrefix(m.Kustomize.Path, "./"), "/"),
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: string(ref.Kind), Name: ref.Name, Namespace: ref.Namespace},
			Prune:     prune, Force: ptr.Deref(m.Kustomize.Force, false), Suspend: ptr.Deref(m.Suspend, false),
			TargetNamespace: m.TargetNamespace, ServiceAccountName: m.ServiceAccount(), KubeConfig: r.kubeConfig(m),
			PostBuild: &kustomizev1.PostBuild{Substitute: variables},
			Wait:      len(m.HealthChecks) == 0, HealthCheckExprs: expressions(m.HealthExpressions),
			DeletionPolicy: kustomizev1.DeletionPolicyWaitForTermination,
		},
	}
	out.SetGroupVersionKind(kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind))
	if m.Remains() {
		out.Spec.DeletionPolicy = kustomizev1.DeletionPolicyOrphan
	}
	if !m.InWorkloadCluster() {
		out.Spec.TargetNamespace = r.target.Namespace
	}
	for _, name := range native {
		out.Spec.DependsOn = append(out.Spec.DependsOn, kustomizev1.DependencyReference{Name: name})
	}
	for _, from := range m.Kustomize.SubstituteFrom {
		out.Spec.PostBuild.SubstituteFrom = append(out.Spec.PostBuild.SubstituteFrom, kustomizev1.SubstituteReference{
			Kind: from.Kind, Name: from.Name, Optional: ptr.Deref(from.Optional, false),
		})
	}
	for _, rule := range m.Drift.Ignore {
		out.Spec.Ignore = append(out.Spec.Ignore, kustomizev1.IgnoreRule{Paths: rule.Paths, Target: selector(rule.Target)})
	}
	for _, h := range m.HealthChecks {
		namespace := h.Namespace
		if namespace == "" {
			namespace = m.TargetNamespace
		}
		out.Spec.HealthChecks = append(out.Spec.HealthChecks, meta.NamespacedObjectKindReference{
			APIVersion: h.APIVersion, Kind: h.Kind, Name: h.Name, Namespace: namespace,
		})
	}
	return out, nil
}

// variables are Nova's own substitutions and the module's, which take
// precedence.
func (r *renderer) variables(k *addonsv1.Kustomize, inWorkloadCluster bool) (map[string]string, error) {
	out := r.target.Facts.Substitutions()
	if !inWorkloadCluster {
		out = r.target.Facts.inManagement(r.target.ManagementImages).Substitutions()
		out["imageRepository"] = r.target.ManagementImages
	}
	for _, v := range k.Substitute {
		value, err := r.executeTemplate(ptr.Deref(v.Value, ""))
		if err != nil {
			return nil, fmt.Errorf("substitute %s: %w", v.Name, err)
		}
		out[v.Name] = value
	}
	return out, nil
}
