package bootstrap

import "testing"

func TestCoreDNSPatch(t *testing.T) {
	const file = "/etc/kubernetes/patches/corednsdeployment+strategic.json"
	for name, tc := range map[string]struct {
		mode    Mode
		version string
		want    bool
	}{
		"Init":             {Init, "v1.36.3", true},
		"First":            {Init, "v1.32.0", true},
		"Before":           {Init, "v1.31.9", false},
		"JoinControlPlane": {JoinControlPlane, "v1.36.3", false},
		"JoinWorker":       {JoinWorker, "v1.36.3", false},
	} {
		t.Run(name, func(t *testing.T) {
			out := render(t, facts(tc.mode, func(in *Input) { in.Version = tc.version }))
			if _, found := filesOf(t, out)[file]; found != tc.want {
				t.Errorf("the patch exists: %t, want %t", found, tc.want)
			}
		})
	}
}
