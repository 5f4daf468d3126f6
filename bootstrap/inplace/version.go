package inplace

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// RefuseVersion returns why workers cannot change to another version of Kubernetes
// in place, or nothing. Kubernetes supports a kubelet of another minor version only
// on a node that was drained.
func RefuseVersion(was, is string, programs []bootstrapv1.KubernetesProgramsSpec) string {
	return refuse(was, is, programs, 0)
}

// RefuseControlPlaneVersion returns why machines of a control plane cannot change to
// another version of Kubernetes in place, or nothing.
func RefuseControlPlaneVersion(was, is string, programs []bootstrapv1.KubernetesProgramsSpec) string {
	return refuse(was, is, programs, 1)
}

// refuse allows a change by some minor versions.
func refuse(was, is string, programs []bootstrapv1.KubernetesProgramsSpec, minors uint) string {
	before, err := version.ParseSemantic(was)
	if err != nil {
		return "the current version is unknown"
	}
	after, err := version.ParseSemantic(is)
	switch {
	case err != nil:
		return "the version is unknown"
	case after.LessThan(before):
		return "a former version"
	case before.Major() != after.Major() || after.Minor() > before.Minor()+minors:
		return "another minor version"
	case !slices.ContainsFunc(programs, func(p bootstrapv1.KubernetesProgramsSpec) bool { return p.Version == is }):
		return "platform.kubernetesPrograms does not have it"
	}
	return ""
}
