package modules

import (
	"maps"
	"testing"
	"time"
)

func TestPlanRemoval(t *testing.T) {
	alive := Ending{Reachable: true, Timeout: time.Minute, Now: noon}
	going := func(name string, ago time.Duration, needs ...string) Piece {
		return Piece{Module: name, Needs: needs, Deleting: true, Since: noon.Add(-ago)}
	}
	cases := map[string]struct {
		pieces  []Piece
		staying map[string][]string
		ending  Ending
		want    map[string]Removal
	}{
		"WhatOthersNeedGoesLast": {
			pieces: []Piece{{Module: "cni"}, {Module: "dns", Needs: []string{"cni"}}, {Module: "web", Needs: []string{"dns"}}},
			ending: alive,
			want:   map[string]Removal{"cni": RemovalWait, "dns": RemovalWait, "web": RemovalDelete},
		},
		"WhatStaysIsNotCutOff": {
			pieces: []Piece{{Module: "cni"}}, staying: map[string][]string{"web": {"cni"}},
			ending: alive, want: map[string]Removal{"cni": RemovalWait},
		},
		"ItWaitsForWhatGoes": {
			pieces: []Piece{{Module: "cni"}, going("web", time.Second, "cni")},
			ending: alive, want: map[string]Removal{"cni": RemovalWait, "web": RemovalWait},
		},
		"Keep": {
			pieces: []Piece{{Module: "web", Keep: true}}, ending: alive, want: map[string]Removal{"web": RemovalRelease},
		},
		"DeadTenantKeepsNoOrder": {
			pieces: []Piece{{Module: "cni"}, {Module: "web", Needs: []string{"cni"}}},
			ending: Ending{Timeout: time.Minute, Now: noon},
			want:   map[string]Removal{"cni": RemovalDelete, "web": RemovalDelete},
		},
		"Late": {
			pieces: []Piece{{Module: "cni"}, going("web", time.Minute, "cni")},
			ending: alive, want: map[string]Removal{"cni": RemovalRelease, "web": RemovalRelease},
		},
		"GoneTenant": {
			pieces: []Piece{{Module: "cni"}, going("web", 0, "cni")},
			ending: Ending{Gone: true, Reachable: true, Timeout: time.Minute, Now: noon},
			want:   map[string]Removal{"cni": RemovalRelease, "web": RemovalRelease},
		},
		"ReleasedAndFluxIsSlow": {
			pieces: []Piece{{Module: "web", Deleting: true, Suspended: true, Since: noon.Add(-time.Minute)}},
			ending: alive, want: map[string]Removal{"web": RemovalWait},
		},
		"ReleasedAndFluxIsDead": {
			pieces: []Piece{{Module: "web", Deleting: true, Suspended: true, Since: noon.Add(-2 * time.Minute)}},
			ending: alive, want: map[string]Removal{"web": RemovalForce},
		},
		"ManagementServesTheMachines": {
			pieces: []Piece{{Module: "csi", Management: true}, {Module: "web"}},
			ending: Ending{Gone: true, Draining: true, Timeout: time.Minute, Now: noon},
			want:   map[string]Removal{"csi": RemovalWait, "web": RemovalRelease},
		},
		"ManagementGoesWithItsCluster": {
			pieces: []Piece{{Module: "csi", Management: true}, {Module: "web", Needs: []string{"csi"}}},
			ending: Ending{Gone: true, Reachable: true, Timeout: time.Minute, Now: noon},
			want:   map[string]Removal{"csi": RemovalDelete, "web": RemovalRelease},
		},
		"ManagementIsNeverKept": {
			pieces: []Piece{{Module: "csi", Management: true, Keep: true}}, ending: alive,
			want: map[string]Removal{"csi": RemovalDelete},
		},
		"ManagementWaitsForWhatNeedsIt": {
			pieces: []Piece{{Module: "csi", Management: true}, going("web", time.Second, "csi")}, ending: alive,
			want: map[string]Removal{"csi": RemovalWait, "web": RemovalWait},
		},
		"ManagementIsNotReleasedLate": {
			pieces: []Piece{{Module: "cpi", Management: true}, {Module: "csi", Management: true, Deleting: true, Since: noon.Add(-10 * time.Minute)}},
			ending: alive, want: map[string]Removal{"cpi": RemovalDelete, "csi": RemovalWait},
		},
		"ManagementAndFluxIsDead": {
			pieces: []Piece{{Module: "csi", Management: true, Deleting: true, Since: noon.Add(-time.Hour)}},
			ending: Ending{Gone: true, Timeout: time.Minute, Now: noon}, want: map[string]Removal{"csi": RemovalForce},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := PlanRemoval(tc.pieces, tc.staying, tc.ending); !maps.Equal(got, tc.want) {
				t.Errorf("PlanRemoval() = %v, want %v", got, tc.want)
			}
		})
	}
}
