package modules

import (
	"strings"
	"testing"
)

func TestFilled(t *testing.T) {
	facts := map[string]any{"list": []any{"a", "b"}, "none": "", "text": "one:two"}
	cases := map[string]struct{ template, want string }{
		"Plain":    {"a ${b}", "a ${b}"},
		"Include":  {`{{ define "x" }}one{{ "\n" }}two "{{ .facts.none }}"{{ end }}{{ include "x" . | quote }}`, `"one\ntwo \"\""`},
		"JSON":     {`{{ json .facts.list }}`, `["a","b"]`},
		"Checksum": {`{{ checksum "a" }} {{ checksum "b" }}`, "1699463305 521270283"},
		"Contains": {`{{ if contains ":" .facts.text }}yes{{ end }}`, "yes"},
		"Default":  {`{{ default "otherwise" .facts.none }}`, "otherwise"},
		"Join":     {`{{ join "," .facts.list }}`, "a,b"},
		"Replace":  {`{{ replace ":" "-" .facts.text | upper }}`, "ONE-TWO"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := filled(tc.template, facts)
			if err != nil || got != tc.want {
				t.Errorf("filled() = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// A template that includes itself ends in an error, not with the process.
func TestFilledBoundsIncludes(t *testing.T) {
	_, err := filled(`{{ define "x" }}{{ include "x" . }}{{ end }}{{ include "x" . }}`, nil)
	if err == nil || !strings.Contains(err.Error(), "included too deep") {
		t.Errorf("filled() = %v", err)
	}
}
