package inplace

import (
	"cmp"
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

func TestRefuseVersion(t *testing.T) {
	// plane is the answer for a control plane, if it is another one.
	for name, tc := range map[string]struct{ was, is, want, plane string }{
		"Patch":       {was: "v1.36.3", is: "v1.36.5"},
		"Minor":       {was: "v1.35.4", is: "v1.36.5", want: "another minor version", plane: "none"},
		"MinorBefore": {was: "v1.37.0", is: "v1.36.5", want: "a former version"},
		"Minors":      {was: "v1.34.1", is: "v1.36.5", want: "another minor version"},
		"Major":       {was: "v0.36.4", is: "v1.36.5", want: "another minor version"},
		"Former":      {was: "v1.36.6", is: "v1.36.5", want: "a former version"},
		"NoPrograms":  {was: "v1.36.3", is: "v1.36.4", want: "platform.kubernetesPrograms does not have it"},
		"NoVersion":   {is: "v1.36.5", want: "the current version is unknown"},
		"Malformed":   {was: "v1.36.3", is: "1.36", want: "the version is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			programs := []bootstrapv1.KubernetesProgramsSpec{{Version: "v1.36.5"}}
			if got := RefuseVersion(tc.was, tc.is, programs); got != tc.want {
				t.Errorf("workers: %q, want %q", got, tc.want)
			}
			want := strings.TrimPrefix(cmp.Or(tc.plane, tc.want), "none")
			if got := RefuseControlPlaneVersion(tc.was, tc.is, programs); got != want {
				t.Errorf("control plane: %q, want %q", got, want)
			}
		})
	}
}
