package modules

import (
	"cmp"
	"path"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// chartLayer is the layer of an OCI artifact with a Helm chart.
const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// source returns the reference of Flux to the source of a module, and the
// source, unless another owner writes it. The Clusters of a namespace share
// sources. A name depends on the content, so that Clusters at another release
// have another source.
func (r *renderer) source(m *addonsv1.Module) (addonsv1.SourceReference, client.Object) {
	s := r.content.sourceOf(m)
	if s.Ref.Name != "" {
		return s.Ref, nil
	}
	var out client.Object
	kind := sourceKind(s)
	switch {
	case kind == addonsv1.GitRepository:
		out = r.gitRepository(s)
	case s.OCI.URL != "":
		out = r.ociRepository(s)
	case kind == addonsv1.OCIRepository:
		out = r.chartRepository(s, m.Chart)
	default:
		out = r.helmRepository(s)
	}
	return addonsv1.SourceReference{Kind: kind, Name: out.GetName()}, out
}

// sourceMeta is the metadata of a source. Its name has a digest of the source
// and of the referenced release or chart.
func (r *renderer) sourceMeta(s *addonsv1.Source, release addonsv1.Release, chart *addonsv1.Chart) metav1.ObjectMeta {
	what := Content{Sources: []addonsv1.Source{*s}, Release: release, Shard: r.content.Shard}
	name := s.Name
	if chart != nil {
		what.Modules = []addonsv1.Module{{Chart: &addonsv1.Chart{Name: chart.Name, Version: chart.Version}}}
		name += "-" + path.Base(chart.Name)
	}
	return metav1.ObjectMeta{
		Namespace: r.target.Namespace,
		Name:      shortened(r.target.displayName() + "-" + name + "-" + digest([]byte(r.target.Origin+"/"+what.Revision()))),
		Labels:    r.labels(""), Annotations: map[string]string{addonsv1.OriginAnnotation: r.target.Origin},
	}
}

func (r *renderer) gitRepository(s *addonsv1.Source) client.Object {
	out := &sourcev1.GitRepository{ObjectMeta: r.sourceMeta(s, r.content.Release, nil), Spec: sourcev1.GitRepositorySpec{
		URL: s.Git.URL, SecretRef: local(s.Git.SecretRef), Interval: metav1.Duration{Duration: s.Git.Interval()},
		Reference: gitReference(r.content.Release),
	}}
	out.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.GitRepositoryKind))
	return out
}

func (r *renderer) ociRepository(s *addonsv1.Source) client.Object {
	out := &sourcev1.OCIRepository{ObjectMeta: r.sourceMeta(s, r.content.Release, nil), Spec: sourcev1.OCIRepositorySpec{
		URL: s.OCI.URL, SecretRef: local(s.OCI.SecretRef), CertSecretRef: local(s.OCI.CertSecretRef),
		Interval: metav1.Duration{Duration: s.OCI.Interval()}, Insecure: ptr.Deref(s.OCI.Insecure, false),
		Reference: ociReference(r.content.Release),
	}}
	out.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.OCIRepositoryKind))
	return out
}

// chartRepository is the source of one chart at one version in an OCI
// registry. All releases of the chart share it, while Flux would create a
// HelmChart for each release of a HelmRepository.
func (r *renderer) chartRepository(s *addonsv1.Source, chart *addonsv1.Chart) client.Object {
	// Charts have their own versions.
	out := &sourcev1.OCIRepository{ObjectMeta: r.sourceMeta(s, addonsv1.Release{}, chart), Spec: sourcev1.OCIRepositorySpec{
		URL:       strings.TrimSuffix(s.Helm.URL, "/") + "/" + chart.Name,
		SecretRef: local(s.Helm.SecretRef), CertSecretRef: local(s.Helm.CertSecretRef),
		Interval: metav1.Duration{Duration: s.Helm.Interval()}, Insecure: ptr.Deref(s.Helm.Insecure, false),
		Reference:     chartReference(chart.Version),
		LayerSelector: &sourcev1.OCILayerSelector{MediaType: chartLayer, Operation: sourcev1.OCILayerCopy},
	}}
	out.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.OCIRepositoryKind))
	return out
}

// chartReference is a version of a chart in an OCI registry. Helm writes _
// instead of + in tags. A range is the newest tag in it.
func chartReference(version string) *sourcev1.OCIRepositoryRef {
	if _, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v")); err == nil {
		return &sourcev1.OCIRepositoryRef{Tag: strings.ReplaceAll(version, "+", "_")}
	}
	return &sourcev1.OCIRepositoryRef{SemVer: cmp.Or(version, "*")}
}

func (r *renderer) helmRepository(s *addonsv1.Source) client.Object {
	out := &sourcev1.HelmRepository{ObjectMeta: r.sourceMeta(s, addonsv1.Release{}, nil), Spec: sourcev1.HelmRepositorySpec{
		URL: s.Helm.URL, SecretRef: local(s.Helm.SecretRef), CertSecretRef: local(s.Helm.CertSecretRef),
		Interval: metav1.Duration{Duration: s.Helm.Interval()}, Type: sourcev1.HelmRepositoryTypeDefault,
	}}
	out.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.HelmRepositoryKind))
	return out
}

func local(ref addonsv1.LocalReference) *meta.LocalObjectReference {
	if ref.Name == "" {
		return nil
	}
	return &meta.LocalObjectReference{Name: ref.Name}
}

// gitReference is the revision in a Git repository. The API server rejects a
// release that does not fit the source.
func gitReference(r addonsv1.Release) *sourcev1.GitRepositoryRef {
	return &sourcev1.GitRepositoryRef{Tag: r.Tag, SemVer: r.Semver, Branch: r.Branch, Commit: r.Commit}
}

// ociReference is the revision in an OCI repository.
func ociReference(r addonsv1.Release) *sourcev1.OCIRepositoryRef {
	return &sourcev1.OCIRepositoryRef{Tag: r.Tag, SemVer: r.Semver, Digest: r.Digest}
}
