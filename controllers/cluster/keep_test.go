package cluster

import "testing"

func TestKeep(t *testing.T) {
	for name, tc := range map[string]struct {
		use         use
		held, going bool
		want        bool
	}{
		"Named":             {use: ours, want: true},
		"NamedAndHeld":      {use: ours, held: true, want: true},
		"NamedAndHeldGoing": {use: ours, held: true, going: true, want: true},
		"TooLate":           {use: ours, going: true, want: false},
		"Others":            {use: others, want: false},
		"HeldForOthers":     {use: others, held: true, want: true},
		"GoingForOthers":    {use: others, held: true, going: true, want: true},
		"Nobodys":           {use: unused, want: false},
		"NobodysAnyMore":    {use: unused, held: true, want: false},
		"NobodysGoing":      {use: unused, held: true, going: true, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := keep(tc.use, tc.held, tc.going); got != tc.want {
				t.Errorf("keep() = %t, want %t", got, tc.want)
			}
		})
	}
}
