package machine

import (
	"testing"
	"time"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

func TestRemainingShutdownTime(t *testing.T) {
	deleted := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	soft, both := infrav1.PowerOff{Mode: infrav1.PowerOffSoft}, infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard}
	short := infrav1.PowerOff{Mode: infrav1.PowerOffSoftThenHard, TimeoutSeconds: 90}
	cases := map[string]struct {
		p           infrav1.PowerOff
		after       time.Duration
		unreachable bool
		want        time.Duration
	}{
		"Unsaid":            {p: infrav1.PowerOff{}},
		"Hard":              {p: infrav1.PowerOff{Mode: infrav1.PowerOffHard}},
		"Soft":              {p: soft, want: unbounded},
		"SoftForLong":       {p: soft, after: 1000 * time.Hour, want: unbounded},
		"SoftToTheDeaf":     {p: soft, unreachable: true, want: unbounded},
		"Default":           {p: both, want: infrav1.DefaultPowerOffTimeout},
		"DefaultLater":      {p: both, after: 4 * time.Minute, want: time.Minute},
		"BothToTheDeaf":     {p: both, unreachable: true},
		"Short":             {p: short, want: 90 * time.Second},
		"ShortLastMoment":   {p: short, after: 90*time.Second - 1, want: 1},
		"ShortOver":         {p: short, after: 90 * time.Second},
		"ShortLongOver":     {p: short, after: time.Hour},
		"ShortClockBehind":  {p: short, after: -time.Second, want: 91 * time.Second},
		"DefaultOverByHour": {p: both, after: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := remainingShutdownTime(tc.p, deleted, deleted.Add(tc.after), tc.unreachable); got != tc.want {
				t.Errorf("remainingShutdownTime() = %s, want %s", got, tc.want)
			}
		})
	}
}
