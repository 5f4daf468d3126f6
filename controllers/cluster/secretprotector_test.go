package cluster

import "testing"

func TestKeep(t *testing.T) {
	for name, tc := range map[string]struct {
		use            secretUse
		held, deleting bool
		want           bool
	}{
		"Named":                {use: usedByOurs, want: true},
		"NamedAndHeld":         {use: usedByOurs, held: true, want: true},
		"NamedAndHeldDeleting": {use: usedByOurs, held: true, deleting: true, want: true},
		"TooLate":              {use: usedByOurs, deleting: true, want: false},
		"Others":               {use: usedByOthers, want: false},
		"HeldForOthers":        {use: usedByOthers, held: true, want: true},
		"DeletingForOthers":    {use: usedByOthers, held: true, deleting: true, want: true},
		"Nobodys":              {use: unused, want: false},
		"NotNamedAnyMore":      {use: unused, held: true, want: false},
		"NotNamedDeleting":     {use: unused, held: true, deleting: true, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := needsFinalizer(tc.use, tc.held, tc.deleting); got != tc.want {
				t.Errorf("needsFinalizer() = %t, want %t", got, tc.want)
			}
		})
	}
}
