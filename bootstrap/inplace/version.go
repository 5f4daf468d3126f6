package inplace

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// RefuseVersion returns why machines cannot change to another version of Kubernetes in
// place, or nothing. Kubernetes supports no upgrade that skips a minor version.
func RefuseVersion(was, is string, programs []bootstrapv1.KubernetesProgramsSpec) string {
	before, err := version.ParseSemantic(was)
	if err != nil {
		return "the current version is unknown"
	}
	after, err := version.ParseSemantic(is)
	switch {
	case err != nil:
		return "the version is unknown"
	case before.Major() != after.Major():
		return "another major version"
	case after.LessThan(before):
		return "a former version"
	case after.Minor() > before.Minor()+1:
		return "minor versions cannot be skipped"
	case !slices.ContainsFunc(programs, func(p bootstrapv1.KubernetesProgramsSpec) bool { return p.Version == is }):
		return "platform.kubernetesPrograms does not have it"
	}
	return ""
}
