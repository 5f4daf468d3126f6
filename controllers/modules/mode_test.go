package modules

import "testing"

func TestModeOf(t *testing.T) {
	cases := map[string]struct {
		input modeInput
		want  mode
	}{
		"Selected":                    {modeInput{selected: true}, ensure},
		"Suspended":                   {modeInput{selected: true, suspended: true}, keepUnchanged},
		"WithoutFinalizer":            {modeInput{selected: true, setWithoutFinalizer: true}, waitForFinalizer},
		"SuspendedWithoutFinalizer":   {modeInput{selected: true, setWithoutFinalizer: true, suspended: true}, keepUnchanged},
		"UnselectedWithoutFinalizer":  {modeInput{setWithoutFinalizer: true}, removeModules},
		"Unselected":                  {modeInput{}, removeModules},
		"UnselectedWhileSuspended":    {modeInput{suspended: true}, removeModules},
		"SetDeleting":                 {modeInput{selected: true, setDeleting: true}, removeModules},
		"SetTakenAway":                {modeInput{setMissing: true}, releaseModules},
		"ClusterGone":                 {modeInput{selected: true, clusterDeleted: true}, releaseModules},
		"Paused":                      {modeInput{selected: true, paused: true}, keepUnchanged},
		"PausedAndUnselected":         {modeInput{paused: true}, keepUnchanged},
		"PausedAndSetDeleting":        {modeInput{selected: true, paused: true, setDeleting: true}, releaseModules},
		"PausedAndMovedToAnotherHome": {modeInput{paused: true, setMissing: true}, releaseModules},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := modeOf(tc.input); got != tc.want {
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
