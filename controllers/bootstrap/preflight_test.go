package bootstrap

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLift(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		up, around []bool
		want       bool
	}{
		"FirstTime":        {"the control plane comes up for the first time", []bool{false}, []bool{false}, true},
		"Up":               {"the check guards upgrades", []bool{true}, []bool{true}, false},
		"SharedWithOneUp":  {"the check guards the one that is up", []bool{false, true}, []bool{false, true}, false},
		"BesideOneUp":      {"another cluster's upgrade is not affected", []bool{false}, []bool{false, true}, true},
		"UnusedNoCluster":  {"before the first MachineSet", nil, nil, true},
		"UnusedFirstTime":  {"before the first MachineSet", nil, []bool{false}, true},
		"UnusedBesideOne":  {"it may be meant for an upgrade", nil, []bool{true}, false},
		"UnusedBesideBoth": {"it may be meant for an upgrade", nil, []bool{false, true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := skipsCheck(tc.up, tc.around); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestAnnotate(t *testing.T) {
	const (
		skip = "machineset.cluster.x-k8s.io/skip-preflight-checks"
		ours = "nova.bootstrap.cluster.x-k8s.io/lifted-preflight-check"
	)
	skipped := map[string]string{skip: "ControlPlaneIsStable", ours: "ControlPlaneIsStable"}
	users := map[string]string{skip: "KubernetesVersionSkew", "other": "x"}
	both := map[string]string{skip: "KubernetesVersionSkew,ControlPlaneIsStable", ours: "ControlPlaneIsStable", "other": "x"}
	own := map[string]string{skip: "ControlPlaneIsStable"}
	all := map[string]string{skip: "All"}
	for name, tc := range map[string]struct {
		reason  string
		before  map[string]string
		lift    bool
		want    map[string]string
		changed bool
	}{
		"Lift":           {"no annotation was set", nil, true, skipped, true},
		"LiftAgain":      {"it is lifted", skipped, true, skipped, false},
		"LiftBeside":     {"the user's checks stay", users, true, both, true},
		"LiftUsersOwn":   {"the user lifted it: not ours", own, true, own, false},
		"LiftUsersAll":   {"the user lifted all: not ours", all, true, all, false},
		"PutBack":        {"ours goes", skipped, false, map[string]string{}, true},
		"PutBackBeside":  {"the user's checks stay", both, false, users, true},
		"PutBackNothing": {"nothing was lifted", users, false, users, false},
		"PutBackUsers":   {"the user's own stays", own, false, own, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed := annotate(tc.before, tc.lift)
			if diff := cmp.Diff(tc.want, got); diff != "" || changed != tc.changed {
				t.Errorf("%s: changed = %v, annotations (-want +got):\n%s", tc.reason, changed, diff)
			}
		})
	}
}
