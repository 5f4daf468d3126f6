package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"text/tabwriter"
)

// longPoll is the call by which a client waits for changes.
const longPoll = "WaitForUpdatesEx"

// result holds the costs of one provider.
type result struct {
	Provider string
	// Requests are those to vCenter from the first machine applied to the last
	// one provisioned, by method; Seconds is that time.
	Requests map[string]int
	Seconds  float64
	// CPU is the manager's processor time in seconds, PeakMiB its memory.
	CPU, PeakMiB float64
	// Others is the processor time of vCenter, and of this command.
	Others float64
	// Notice is the number of seconds until the provider noticed a VM without power, or the
	// duration of the wait if it did not notice. Meanwhile counts the requests.
	Notice    float64
	Noticed   bool
	Meanwhile int
}

// compare measures all providers and prints their costs.
func compare(ctx context.Context, o options, out io.Writer) error {
	if err := prepareNamespaces(o.Dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d machines; vCenter takes %s for a clone, %s for another task, %s beside for a request; guests boot in %s; changes are reported %s late, data of guests %s late; %d processors\n",
		o.Machines, o.Clone, o.Task, o.Latency, o.Boot, o.UpdateDelay, o.GuestDelay, runtime.NumCPU())
	var results []result
	for _, name := range o.Providers {
		p, err := providerOf(name)
		if err != nil {
			return err
		}
		res, err := measure(ctx, o, p, out)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", name, err)
		}
		results = append(results, res)
	}
	return report(out, o, results)
}

// row is one line of the table.
type row struct {
	title string
	value func(result) float64
	// text replaces the value where a number does not say it.
	text func(result) string
}

func rows(o options) []row {
	each := float64(o.Machines)
	all := []row{
		{title: "requests", value: func(r result) float64 { return float64(total(r.Requests)) }},
		{title: "  a machine", value: func(r result) float64 { return float64(total(r.Requests)) / each }},
		{title: "  a machine, without long polls", value: func(r result) float64 {
			return float64(total(r.Requests)-r.Requests[longPoll]) / each
		}},
		{title: "seconds until all are provisioned", value: func(r result) float64 { return r.Seconds }},
		{title: "processor seconds of the manager", value: func(r result) float64 { return r.CPU }},
		{title: "  of vCenter meanwhile", value: func(r result) float64 { return r.Others }},
		{title: "peak memory of the manager, MiB", value: func(r result) float64 { return r.PeakMiB }},
	}
	if o.Notice == 0 {
		return all
	}
	return append(all,
		row{title: "seconds until a lost VM is noticed", value: func(r result) float64 { return r.Notice }, text: func(r result) string {
			if r.Noticed {
				return ""
			}
			return fmt.Sprintf("over %.0f", r.Notice)
		}},
		row{title: "  requests meanwhile", value: func(r result) float64 { return float64(r.Meanwhile) }},
	)
}

// report prints the calls of each provider, one table of all, and, of two, the
// line that others read.
func report(out io.Writer, o options, results []result) error {
	for _, r := range results {
		fmt.Fprintf(out, "\nRequests of %s to vCenter:", r.Provider)
		for _, method := range slices.Sorted(maps.Keys(r.Requests)) {
			fmt.Fprintf(out, "\n  %6d %s", r.Requests[method], method)
		}
		fmt.Fprintln(out)
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\n\t")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t", r.Provider)
	}
	if len(results) == 2 {
		fmt.Fprint(table, "ratio\t")
	}
	fmt.Fprintln(table)
	for _, row := range rows(o) {
		fmt.Fprintf(table, "%s\t", row.title)
		for _, r := range results {
			fmt.Fprintf(table, "%s\t", row.cell(r))
		}
		if len(results) == 2 {
			least := ""
			if row.text != nil && row.text(results[1]) != "" {
				least = "over "
			}
			fmt.Fprintf(table, "%s%s\t", least, figure(ratio(row.value(results[0]), row.value(results[1]))))
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if len(results) == 2 {
		a, b := results[0], results[1]
		fmt.Fprintf(out, "\nbench-vsphere-compare: requests=%.1f seconds=%.1f cpu=%.1f\n",
			ratio(float64(total(a.Requests)), float64(total(b.Requests))), ratio(a.Seconds, b.Seconds), ratio(a.CPU, b.CPU))
	}
	return nil
}

func (w row) cell(r result) string {
	if w.text != nil {
		if text := w.text(r); text != "" {
			return text
		}
	}
	return figure(w.value(r))
}

// figure writes a number without digits that mean nothing.
func figure(v float64) string {
	if v == math.Trunc(v) || v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// ratio is the second figure over the first.
func ratio(first, second float64) float64 {
	return second / first
}

func total(requests map[string]int) int {
	sum := 0
	for _, n := range requests {
		sum += n
	}
	return sum
}
