package hypervisor

import (
	"regexp"
	"strings"
)

// Stage is how far a guest says that its first boot is.
type Stage string

// Stages of a first boot.
const (
	// StageRunning means a step is under way.
	StageRunning Stage = "running"
	// StageRetrying means a step failed and is tried again.
	StageRetrying Stage = "retrying"
	// StageFailed means a step failed for good: the guest does nothing more.
	StageFailed Stage = "failed"
	// StageUnfinished means the guest has become a node, and what was to
	// follow failed.
	StageUnfinished Stage = "unfinished"
)

// Report is what a guest says of its first boot.
type Report struct {
	// Stage is empty when the guest has said nothing.
	Stage Stage
	// Step is what it does, or how it failed, for people.
	Step string
	// Log are the last lines of its log, with " | " between them.
	Log string
}

const (
	// reportPrefix tells a report from what else stands in its place.
	reportPrefix = "nova: "
	// reportLog parts the log from the step.
	reportLog = " || "
	// maxReport is how much of a report is believed.
	maxReport = 2048
)

// ParseReport reads "nova: <stage>: <step> || <log>". Any other text is no
// report. A guest may say what it likes, so what looks like a credential is
// taken out once more, and what is no text is left out.
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
	r.Step, r.Log = clean(step), clean(log)
	return r
}

// secrets are what no report may hold; the first group of each stays. The
// guest's own script leaves out the same.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(-----BEGIN [A-Z ]+-----).*?(?:-----END [A-Z ]+-----|$)`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic) +)[a-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	regexp.MustCompile(`(://)[^/@ ]+@`),
	regexp.MustCompile(`(?i)((?:password|passwd|passphrase|token|secret|credentials?|api-?_?key|certificate-?_?key|client-key-data)[a-z_-]*["']? *[:= ] *)(?:"[^"]*"|'[^']*'|[^ ,;|]{6,})`),
	regexp.MustCompile(`()[A-Za-z0-9+/]{60,}={0,2}`),
}

// clean returns a text that may be shown to anybody.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	for _, secret := range secrets {
		text = secret.ReplaceAllString(text, "${1}***")
	}
	return strings.TrimSpace(text)
}
