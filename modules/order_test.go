package modules

import (
	"slices"
	"testing"
)

func TestPath(t *testing.T) {
	dependsOn := map[string][]string{
		"storage": {"base"}, "data": {"storage", "base"}, "a": {"b", "base"}, "b": {"c"}, "c": {"a"}, "self": {"self"}, "outside": {"a"},
	}
	for name, tt := range map[string]struct {
		from, to string
		want     []string
	}{
		"Direct":             {"storage", "base", []string{"storage", "base"}},
		"Through another":    {"data", "base", []string{"data", "storage", "base"}},
		"Against the arrows": {"base", "storage", nil},
		"Unknown":            {"nothing", "base", nil},
		"No cycle":           {"data", "data", nil},
		"Cycle":              {"a", "a", []string{"a", "b", "c", "a"}},
		"Cycle of one":       {"self", "self", []string{"self", "self"}},
		"Leads to a cycle":   {"outside", "outside", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Path(tt.from, tt.to, dependsOn); !slices.Equal(got, tt.want) {
				t.Errorf("Path(%s, %s) = %v, want %v", tt.from, tt.to, got, tt.want)
			}
		})
	}
}
