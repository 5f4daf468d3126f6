package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestReport(t *testing.T) {
	first := result{
		Provider: ours, Requests: map[string]int{"CloneVM_Task": 100, longPoll: 50}, Seconds: 12, CPU: 1.5, PeakMiB: 64,
		Notice: 0.1, Noticed: true, Meanwhile: 3,
	}
	second := result{
		Provider: theirs, Requests: map[string]int{"CloneVM_Task": 100, "RetrievePropertiesEx": 1400, longPoll: 300}, Seconds: 42, CPU: 15,
		PeakMiB: 96, Notice: 720, Meanwhile: 900,
	}
	tests := []struct {
		name    string
		notice  time.Duration
		results []result
		want    []string
		not     string
	}{
		{
			name: "both", notice: time.Minute, results: []result{first, second},
			want: []string{
				"requests 150 1800 12", "a machine, without long polls 1 15 15", "manager, MiB 64 96 1.5",
				"noticed 0.1 over 720 over 7200", "100 CloneVM_Task", "1400 RetrievePropertiesEx",
			},
		},
		{name: "without a lost VM", results: []result{first, second}, want: []string{"provisioned 12 42 3.5"}, not: "noticed"},
		{name: "one", results: []result{first}, want: []string{"provisioned 12"}, not: "bench-vsphere-compare"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			g.Expect(report(&out, options{Machines: 100, Notice: test.notice}, test.results)).To(Succeed())
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range test.want {
				g.Expect(text).To(ContainSubstring(want))
			}
			if test.not != "" {
				g.Expect(text).NotTo(ContainSubstring(test.not))
			}
			if len(test.results) == 2 {
				g.Expect(out.String()).To(HaveSuffix("\nbench-vsphere-compare: requests=12.0 seconds=3.5 cpu=10.0\n"))
			}
		})
	}
}
