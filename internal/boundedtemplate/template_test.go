package boundedtemplate

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

func execute(text string, data any) (string, error) {
	t, err := Parse("", text)
	if err != nil {
		return "", err
	}
	return t.Execute(data, NewBudget())
}

func TestExecute(t *testing.T) {
	data := map[string]any{"empty": []any{}, "list": []any{"a", "b"}, "none": "", "text": "one:two"}
	for name, tc := range map[string]struct{ template, want string }{
		"Plain":    {"a ${b}", "a ${b}"},
		"Include":  {`{{ define "x" }}one{{ "\n" }}two "{{ .none }}"{{ end }}{{ include "x" . | quote }}`, `"one\ntwo \"\""`},
		"JSON":     {`{{ json .list }}`, `["a","b"]`},
		"Checksum": {`{{ checksum "a" }} {{ checksum "b" }}`, "1699463305 521270283"},
		"Contains": {`{{ if contains ":" .text }}yes{{ end }}`, "yes"},
		"Default":  {`{{ default "otherwise" .none }}`, "otherwise"},
		"Join":     {`{{ join "," .list }}`, "a,b"},
		"Replace":  {`{{ replace ":" "-" .text | upper }}`, "ONE-TWO"},
		"Print":    {`{{ print "a" .text 1 2 }}`, "aone:two1 2"},
		"Printf":   {`{{ printf "%s=%d%%" .text 5 }}`, "one:two=5%"},
		"Range":    {`{{ range $i, $e := .list }}{{ $i }}{{ $e }}{{ else }}none{{ end }}`, "0a1b"},
		"Else":     {`{{ range .empty }}x{{ else }}none{{ end }}`, "none"},
		"Break":    {`{{ range .list }}{{ . }}{{ break }}{{ end }}`, "a"},
		"Template": {`{{ define "x" }}<{{ . }}>{{ end }}{{ range .list }}{{ template "x" . }}{{ end }}`, "<a><b>"},
		"Block":    {`{{ block "x" .text }}{{ . }}{{ end }}`, "one:two"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := execute(tc.template, data)
			if err != nil || got != tc.want {
				t.Errorf("Execute() = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// doubled defines templates that each do twice the work of the previous one.
func doubled(leaf, call string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `{{ define "t0" }}%s{{ end }}`, leaf)
	for i := 1; i <= 40; i++ {
		once := fmt.Sprintf(call, i-1)
		fmt.Fprintf(&out, `{{ define "t%d" }}%s%s{{ end }}`, i, once, once)
	}
	return out.String() + `{{ template "t40" . }}`
}

// Each of these would take gigabytes of memory, or hours.
func TestBombs(t *testing.T) {
	large := strings.Repeat("x", MaxOutput/2)
	list := make([]any, 1000)
	for i := range list {
		list[i] = "x"
	}
	var grown strings.Builder
	grown.WriteString(`{{ $x := "xxxxxxxxxxxxxxxx" }}`)
	for range 60 {
		grown.WriteString(`{{ $x = print $x $x }}`)
	}
	for name, text := range map[string]string{
		"TemplatesThatWrite":     doubled("xxxxxxxxxxxxxxxx", `{{ template "t%d" . }}`),
		"TemplatesThatDoNothing": doubled("", `{{ template "t%d" . }}`),
		"Includes":               doubled("xxxxxxxxxxxxxxxx", `{{ template "t%d" . }}{{ include "t0" . | quote }}`),
		"Recursion":              `{{ define "x" }}{{ template "x" . }}{{ template "x" . }}{{ end }}{{ template "x" . }}`,
		"RangeOverNumber":        `{{ range 9000000000000000000 }}{{ end }}`,
		"NestedRanges":           `{{ range .list }}{{ range $.list }}{{ range $.list }}{{ end }}{{ end }}{{ end }}`,
		"RangeInElse":            `{{ range .empty }}{{ else }}{{ range 9000000000000000000 }}{{ end }}{{ end }}`,
		"RangeInDefinition":      `{{ define "x" }}{{ range 9000000000000000000 }}{{ end }}{{ end }}{{ include "x" . }}`,
		"GrowingVariable":        grown.String(),
		"GrowingPrintf":          strings.ReplaceAll(grown.String(), "print $x $x", `printf "%s%s" $x $x`),
		"Replace":                `{{ replace "x" .large .large }}`,
		"ReplaceNothing":         `{{ replace "" .large .large }}`,
		"Join":                   `{{ join .large .list }}`,
		"Quotes":                 `{{ range 1000 }}{{ $x := quote $.large }}{{ end }}`,
		"WholeData":              `{{ range 1000 }}{{ $x := print $ $ $ }}{{ end }}`,
		"Output":                 `{{ range 1000 }}{{ $.large }}{{ end }}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			_, err := execute(text, map[string]any{"empty": []any{}, "large": large, "list": list})
			limit := (*LimitError)(nil)
			if !errors.As(err, &limit) {
				t.Errorf("Execute() = %v, want a limit", err)
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 512<<20 {
				t.Errorf("it took %d MiB", used>>20)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Functions with large results are rejected by name.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{{ printf "%1000000d" 1 }}`:                                      "without flags, widths and precisions",
		`{{ printf "%.1000000f" 1.0 }}`:                                   "without flags, widths and precisions",
		`{{ printf "%*d" 1000000 1 }}`:                                    "without flags, widths and precisions",
		`{{ printf "%[1]s%[1]s" "x" }}`:                                   "without flags, widths and precisions",
		`{{ html "x" }}`:                                                  "html is not available",
		`{{ if true }}{{ "x" | js }}{{ end }}`:                            "js is not available",
		`{{ define "x" }}{{ urlquery 1 }}{{end}}`:                         "urlquery is not available",
		`{{ (call .f).x }}`:                                               "call is not available",
		`{{ charge -5 }}`:                                                 `function "charge" not defined`,
		`{{ define "x" }}{{ include "x" . }}{{ end }}{{ include "x" . }}`: "included too deep",
		`{{ .missing }}`:                                                  "map has no entry for key",
	} {
		if _, err := execute(text, map[string]any{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Templates that belong together share a budget.
func TestBudgetIsShared(t *testing.T) {
	parsed, err := Parse("", `{{ range 100000 }}{{ end }}`)
	if err != nil {
		t.Fatal(err)
	}
	budget := NewBudget()
	if _, err := parsed.Execute(nil, budget); err != nil {
		t.Fatal(err)
	}
	_, first := parsed.Execute(nil, budget)
	_, second := parsed.Execute(nil, budget)
	if limit := (*LimitError)(nil); !errors.As(errors.Join(first, second), &limit) {
		t.Errorf("three executions: %v, %v", first, second)
	}
}

func FuzzExecute(f *testing.F) {
	f.Add(`{{ range .list }}{{ printf "%s" . | quote }}{{ end }}`)
	f.Add(`{{ define "x" }}{{ . }}{{ end }}{{ include "x" .text | upper }}`)
	f.Add(`{{ range 9000000000000000000 }}{{ end }}`)
	f.Add(`{{ $x := print .text .text }}{{ $x = replace "t" $x $x }}{{ len $x }}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 64<<10 {
			return // longer than the API takes
		}
		begin := time.Now()
		out, err := execute(text, map[string]any{"list": []any{"a", int64(1)}, "text": "text"})
		if err == nil && len(out) > MaxOutput+len(text) {
			t.Errorf("%d bytes", len(out))
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
