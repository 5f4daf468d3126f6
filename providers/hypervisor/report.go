package hypervisor

import (
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/internal/redact"
)

// Stage is the progress of the first boot that a guest reports.
type Stage string

// Stages of a first boot.
const (
	// StageRunning means that a step is in progress.
	StageRunning Stage = "running"
	// StageRetrying means that a step failed and that the guest retries it.
	StageRetrying Stage = "retrying"
	// StageFailed means that a step failed and that the guest does not retry it
	// or continue.
	StageFailed Stage = "failed"
	// StageUnfinished means that the guest has joined as a node and that a later
	// step failed.
	StageUnfinished Stage = "unfinished"
)

// Report is the progress of the first boot that a guest reports.
type Report struct {
	// Stage is empty if the guest has reported nothing.
	Stage Stage
	// Step is the current step, or the failure, for display.
	Step string
	// Log holds the last lines of the log, joined with " | ".
	Log string
}

const (
	// reportPrefix distinguishes a report from other values of the same field.
	reportPrefix = "nova: "
	// reportLog separates the step from the log.
	reportLog = " || "
	// maxReport is the number of bytes of a report that are read.
	maxReport = 2048
)

// ParseReport parses "nova: <stage>: <step> || <log>" and returns the zero
// value for all other text. A guest controls the text, so ParseReport removes
// credentials again, although the script in the guest already removes them, and
// it removes characters that cannot be printed.
func ParseReport(text string) Report {
	text, ours := strings.CutPrefix(text, reportPrefix)
	if !ours {
		return Report{}
	}
	stage, text, _ := strings.Cut(text, ": ")
	r := Report{Stage: Stage(stage)}
	switch r.Stage {
	case StageRunning, StageRetrying, StageFailed, StageUnfinished:
	default:
		return Report{}
	}
	step, log, _ := strings.Cut(text[:min(len(text), maxReport)], reportLog)
	r.Step, r.Log = redact.Line(step), redact.Line(log)
	return r
}
