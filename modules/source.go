package modules

import (
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// sources renders the sources of the set itself. The Clusters of a namespace
// share them. A name depends on the content, so that Clusters at another
// release have another source.
func (r *renderer) sources() []client.Object {
	var out []client.Object
	for i := range r.content.Sources {
		s := &r.content.Sources[i]
		if s.Ref.Name == "" {
			out = append(out, r.source(s))
		}
	}
	return out
}

// reference is the reference of Flux to the source of a module.
func (r *renderer) reference(m *addonsv1.Module) addonsv1.SourceReference {
	s := &r.content.Sources[0]
	for i := range r.content.Sources {
		if r.content.Sources[i].Name == m.Source {
			s = &r.content.Sources[i]
		}
	}
	if s.Ref.Name != "" {
		return s.Ref
	}
	return addonsv1.SourceReference{Kind: sourceKind(s), Name: r.sourceName(s)}
}

func sourceKind(s *addonsv1.Source) addonsv1.SourceKind {
	switch {
	case s.Git.URL != "":
		return addonsv1.GitRepository
	case s.OCI.URL != "":
		return addonsv1.OCIRepository
	default:
		return addonsv1.HelmRepository
	}
}

// sourceName names a source after the set, the source, and the referenced
// release.
func (r *renderer) sourceName(s *addonsv1.Source) string {
	release := r.content.Release
	if sourceKind(s) == addonsv1.HelmRepository {
		release = addonsv1.Release{} // charts have their own versions
	}
	what := Content{Sources: []addonsv1.Source{*s}, Release: release, Shard: r.content.Shard}
	return shortened(r.target.displayName() + "-" + s.Name + "-" + digest([]byte(r.target.Origin+"/"+what.Revision())))
}

func (r *renderer) source(s *addonsv1.Source) client.Object {
	object := metav1.ObjectMeta{
		Namespace: r.target.Namespace, Name: r.sourceName(s),
		Labels: r.labels(""), Annotations: map[string]string{addonsv1.OriginAnnotation: r.target.Origin},
	}
	switch sourceKind(s) {
	case addonsv1.GitRepository:
		out := &sourcev1.GitRepository{ObjectMeta: object, Spec: sourcev1.GitRepositorySpec{
			URL: s.Git.URL, SecretRef: local(s.Git.SecretRef), Interval: metav1.Duration{Duration: s.Git.Interval()},
			Reference: gitReference(r.content.Release),
		}}
		out.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.GitRepositoryKind))
		return out
	case addonsv1.OCIRepository:
		out := &sourcev1.OCIRepository{ObjectMeta: object, Spec: sourcev1.OCIRepositorySpec{
			URL: s.OCI.URL, SecretRef: local(s.OCI.SecretRef), CertSecretRef: local(s.OCI.CertSecretRef),
			Interval: metav1.Duration{Duration: s.OCI.Interval()}, Insecure: ptr.Deref(s.OCI.Insecure, false),
			Reference: ociReference(r.content.Release),
		}}
		out.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.OCIRepositoryKind))
		return out
	default:
		out := &sourcev1.HelmRepository{ObjectMeta: object, Spec: sourcev1.HelmRepositorySpec{
			URL: s.Helm.URL, SecretRef: local(s.Helm.SecretRef), CertSecretRef: local(s.Helm.CertSecretRef),
			Interval: metav1.Duration{Duration: s.Helm.Interval()}, Insecure: ptr.Deref(s.Helm.Insecure, false),
			Type: helmType(s.Helm.URL),
		}}
		out.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(sourcev1.HelmRepositoryKind))
		return out
	}
}

func local(ref addonsv1.LocalReference) *meta.LocalObjectReference {
	if ref.Name == "" {
		return nil
	}
	return &meta.LocalObjectReference{Name: ref.Name}
}

func helmType(url string) string {
	if len(url) > 6 && url[:6] == "oci://" {
		return sourcev1.HelmRepositoryTypeOCI
	}
	return sourcev1.HelmRepositoryTypeDefault
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
