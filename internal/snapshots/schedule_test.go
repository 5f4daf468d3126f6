package snapshots_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
)

func at(value string) time.Time {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		panic(err)
	}
	return t
}

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, schedule, last, want string
		fails                        bool
	}{
		"First":    {"without a snapshot one is due at once", "0 3 * * *", "", "", false},
		"Hours":    {"the next time after the last one", "0 */6 * * *", "2026-01-02T05:59:00Z", "2026-01-02T06:00:00Z", false},
		"Missed":   {"a missed snapshot is due once", "@hourly", "2026-01-02T05:59:00Z", "2026-01-02T06:00:00Z", false},
		"Exactly":  {"a snapshot that was begun in time counts for it", "0 * * * *", "2026-01-02T06:00:00Z", "2026-01-02T07:00:00Z", false},
		"Every":    {"counted from the last", "@every 90m", "2026-01-02T06:10:00Z", "2026-01-02T07:40:00Z", false},
		"Zone":     {"in another zone than UTC", "CRON_TZ=Europe/Moscow 0 3 * * *", "2026-01-02T05:00:00Z", "2026-01-03T00:00:00Z", false},
		"Summer":   {"an hour that a clock skips is passed over", "CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z", false},
		"TooOften": {"a snapshot a second is a mistake", "@every 1s", "", "", true},
		"Never":    {"February has no 31st", "0 0 31 2 *", "", "", true},
		"Nonsense": {"an invalid cron schedule", "0 99 * * *", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			var last, want time.Time
			if tc.last != "" {
				last = at(tc.last)
			}
			if tc.want != "" {
				want = at(tc.want)
			}
			got, err := snapshots.Next(tc.schedule, last)
			if (err != nil) != tc.fails {
				t.Fatalf("%s: err = %v", tc.reason, err)
			}
			if !got.Equal(want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, want)
			}
		})
	}
}

func TestPrecedes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		history  string
		revision int64
		of       string
		at       int64
		want     bool
	}{
		"GoesOn":    {"a control plane's own etcd", "a", 100, "a", 101, true},
		"Same":      {"nothing was written since", "a", 100, "a", 100, true},
		"PutBack":   {"an etcd restored by hand has the same history", "a", 100, "a", 50, true},
		"Anew":      {"one that came up empty is another", "a", 100, "b", 3, false},
		"Outgrown":  {"also if the old one was small", "a", 100, "b", 1_000_000_100, false},
		"Older":     {"a snapshot that does not say whose it is: revisions only grow", "", 100, "b", 101, true},
		"OlderAnew": {"so a lower one is of another", "", 100, "b", 99, false},
		"Rescued":   {"nor does one of a surviving member", "a", 100, "", 100, true},
		"Neither":   {"two that do not say it", "", 100, "", 99, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshots.Snapshot{History: tc.history, Revision: tc.revision}
			if got := s.Precedes(tc.of, tc.at); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestExpired(t *testing.T) {
	now := at("2026-01-10T00:00:00Z")
	var all []snapshots.Snapshot
	for _, day := range []string{"01", "03", "05", "07", "09"} {
		all = append(all, snapshots.Snapshot{Name: day, Time: at("2026-01-" + day + "T00:00:00Z")})
	}
	for name, tc := range map[string]struct {
		reason      string
		all         []snapshots.Snapshot
		count, days int
		want        []string
	}{
		"NoLimit":  {"without limits nothing is deleted", all, 0, 0, nil},
		"Count":    {"the oldest beyond the count", all, 3, 0, []string{"01", "03"}},
		"Room":     {"there is room for all", all, 5, 0, nil},
		"Days":     {"all older ones", all, 0, 4, []string{"01", "03", "05"}},
		"OnTheDay": {"a snapshot of exactly that age stays", all, 0, 5, []string{"01", "03"}},
		"Both":     {"either limit is enough", all, 2, 6, []string{"01", "03", "05"}},
		"Newest":   {"the newest stays, however old", all[:2], 1, 1, []string{"01"}},
		"One":      {"also if it is the only one", all[:1], 1, 1, nil},
		"None":     {"nothing of nothing", nil, 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range snapshots.Expired(tc.all, tc.count, tc.days, now) {
				got = append(got, s.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
