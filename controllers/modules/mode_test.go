package modules

import "testing"

func TestModeOf(t *testing.T) {
	cases := map[string]struct {
		standing standing
		want     mode
	}{
		"Selected":                    {standing{selected: true}, ensure},
		"Suspended":                   {standing{selected: true, suspended: true}, leave},
		"Unselected":                  {standing{}, withdraw},
		"UnselectedWhileSuspended":    {standing{suspended: true}, withdraw},
		"SetDeleting":                 {standing{selected: true, setDeleting: true}, withdraw},
		"SetTakenAway":                {standing{setGone: true}, abandon},
		"ClusterGone":                 {standing{selected: true, clusterGone: true}, abandon},
		"Paused":                      {standing{selected: true, paused: true}, leave},
		"PausedAndUnselected":         {standing{paused: true}, leave},
		"PausedAndSetDeleting":        {standing{selected: true, paused: true, setDeleting: true}, abandon},
		"PausedAndMovedToAnotherHome": {standing{paused: true, setGone: true}, abandon},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := modeOf(tc.standing); got != tc.want {
				t.Errorf("modeOf() = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRevisionFor(t *testing.T) {
	cases := map[string]struct {
		has     []string
		newest  string
		granted bool
		want    string
	}{
		"New":        {nil, "", false, "2"},
		"Waiting":    {[]string{"1"}, "1", false, "1"},
		"Granted":    {[]string{"1"}, "1", true, "2"},
		"OnItsWay":   {[]string{"1", "2"}, "2", false, "2"},
		"TwoOldOnes": {[]string{"0", "1"}, "1", false, "1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := revisionFor("2", tc.has, tc.newest, tc.granted); got != tc.want {
				t.Errorf("revisionFor() = %s, want %s", got, tc.want)
			}
		})
	}
}
