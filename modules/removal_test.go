package modules

import (
	"maps"
	"testing"
	"time"
)

func TestPlanRemoval(t *testing.T) {
	alive := RemovalState{Reachable: true, Timeout: time.Minute, Now: noon}
	going := func(name string, ago time.Duration, needs ...string) FluxObject {
		return FluxObject{Module: name, Needs: needs, Deleting: true, Since: noon.Add(-ago)}
	}
	cases := map[string]struct {
		objects []FluxObject
		staying map[string][]string
		ending  RemovalState
		want    map[string]Removal
	}{
		"WhatOthersNeedGoesLast": {
			objects: []FluxObject{{Module: "cni"}, {Module: "dns", Needs: []string{"cni"}}, {Module: "web", Needs: []string{"dns"}}},
			ending:  alive,
			want:    map[string]Removal{"cni": RemovalWait, "dns": RemovalWait, "web": RemovalDelete},
		},
		"WhatStaysIsNotCutOff": {
			objects: []FluxObject{{Module: "cni"}}, staying: map[string][]string{"web": {"cni"}},
			ending: alive, want: map[string]Removal{"cni": RemovalWait},
		},
		"ItWaitsForWhatGoes": {
			objects: []FluxObject{{Module: "cni"}, going("web", time.Second, "cni")},
			ending:  alive, want: map[string]Removal{"cni": RemovalWait, "web": RemovalWait},
		},
		"Keep": {
			objects: []FluxObject{{Module: "web", Keep: true}}, ending: alive, want: map[string]Removal{"web": RemovalRelease},
		},
		"DeadTenantKeepsNoOrder": {
			objects: []FluxObject{{Module: "cni"}, {Module: "web", Needs: []string{"cni"}}},
			ending:  RemovalState{Timeout: time.Minute, Now: noon},
			want:    map[string]Removal{"cni": RemovalDelete, "web": RemovalDelete},
		},
		"Late": {
			objects: []FluxObject{{Module: "cni"}, going("web", time.Minute, "cni")},
			ending:  alive, want: map[string]Removal{"cni": RemovalRelease, "web": RemovalRelease},
		},
		"GoneTenant": {
			objects: []FluxObject{{Module: "cni"}, going("web", 0, "cni")},
			ending:  RemovalState{SkipCleanup: true, Reachable: true, Timeout: time.Minute, Now: noon},
			want:    map[string]Removal{"cni": RemovalRelease, "web": RemovalRelease},
		},
		"ReleasedAndFluxIsSlow": {
			objects: []FluxObject{{Module: "web", Deleting: true, Suspended: true, Since: noon.Add(-time.Minute)}},
			ending:  alive, want: map[string]Removal{"web": RemovalWait},
		},
		"ReleasedAndFluxIsDead": {
			objects: []FluxObject{{Module: "web", Deleting: true, Suspended: true, Since: noon.Add(-2 * time.Minute)}},
			ending:  alive, want: map[string]Removal{"web": RemovalForce},
		},
		"ManagementServesTheMachines": {
			objects: []FluxObject{{Module: "csi", Management: true}, {Module: "web"}},
			ending:  RemovalState{SkipCleanup: true, Draining: true, Timeout: time.Minute, Now: noon},
			want:    map[string]Removal{"csi": RemovalWait, "web": RemovalRelease},
		},
		"ManagementGoesWithItsCluster": {
			objects: []FluxObject{{Module: "csi", Management: true}, {Module: "web", Needs: []string{"csi"}}},
			ending:  RemovalState{SkipCleanup: true, Reachable: true, Timeout: time.Minute, Now: noon},
			want:    map[string]Removal{"csi": RemovalDelete, "web": RemovalRelease},
		},
		"ManagementIsNeverKept": {
			objects: []FluxObject{{Module: "csi", Management: true, Keep: true}}, ending: alive,
			want: map[string]Removal{"csi": RemovalDelete},
		},
		"ManagementWaitsForWhatNeedsIt": {
			objects: []FluxObject{{Module: "csi", Management: true}, going("web", time.Second, "csi")}, ending: alive,
			want: map[string]Removal{"csi": RemovalWait, "web": RemovalWait},
		},
		"ManagementIsNotReleasedLate": {
			objects: []FluxObject{{Module: "cpi", Management: true}, {Module: "csi", Management: true, Deleting: true, Since: noon.Add(-10 * time.Minute)}},
			ending:  alive, want: map[string]Removal{"cpi": RemovalDelete, "csi": RemovalWait},
		},
		"ManagementAndFluxIsDead": {
			objects: []FluxObject{{Module: "csi", Management: true, Deleting: true, Since: noon.Add(-time.Hour)}},
			ending:  RemovalState{SkipCleanup: true, Timeout: time.Minute, Now: noon}, want: map[string]Removal{"csi": RemovalForce},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := PlanRemoval(tc.objects, tc.staying, tc.ending); !maps.Equal(got, tc.want) {
				t.Errorf("PlanRemoval() = %v, want %v", got, tc.want)
			}
		})
	}
}
