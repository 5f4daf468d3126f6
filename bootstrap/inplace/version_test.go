package inplace

import (
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

func TestRefuseVersion(t *testing.T) {
	for name, tc := range map[string]struct{ was, is, want string }{
		"Patch":      {"v1.36.3", "v1.36.5", ""},
		"Minor":      {"v1.35.4", "v1.36.5", ""},
		"Skipped":    {"v1.34.4", "v1.36.5", "minor versions cannot be skipped"},
		"Major":      {"v0.36.4", "v1.36.5", "another major version"},
		"FormerOne":  {"v1.37.0", "v1.36.5", "a former version"},
		"Former":     {"v1.36.6", "v1.36.5", "a former version"},
		"NoPrograms": {"v1.36.3", "v1.36.4", "platform.kubernetesPrograms does not have it"},
		"NoVersion":  {"", "v1.36.5", "the current version is unknown"},
		"Malformed":  {"v1.36.3", "1.36", "the version is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := RefuseVersion(tc.was, tc.is, []bootstrapv1.KubernetesProgramsSpec{{Version: "v1.36.5"}}); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
