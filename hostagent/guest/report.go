package guest

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/internal/redact"
)

// Stage is the stage in a report. The managers read it.
type Stage string

// The stages of a first boot.
const (
	// Running means that a step is in progress.
	Running Stage = "running"
	// Retrying means that a step failed and is tried again.
	Retrying Stage = "retrying"
	// Failed means that the machine does not become a node.
	Failed Stage = "failed"
	// Unfinished means that the machine is a node and that a later step failed.
	Unfinished Stage = "unfinished"
)

const (
	// sendTimeout limits a report: a hypervisor that does not answer must not
	// stop the boot.
	sendTimeout = 30 * time.Second
	// logLines is the number of lines of the log in a report.
	logLines = 10
	// logBytes is the number of bytes at the end of the log that are read.
	logBytes = 64 << 10
)

// Report reports a stage and a step to the hypervisor, and unless the step is
// running the end of the log. A failure to report is ignored.
func (h *Hypervisor) Report(ctx context.Context, m *machine.Machine, stage Stage, step, log string) {
	if h == nil {
		return
	}
	text := cut(redact.Line(fmt.Sprintf("nova: %s: %s", stage, step)), h.most)
	if left := h.most - len(text) - len(separator); stage != Running && left >= shortest {
		text += separator + lastLines(log, left)
	}
	h.replace(ctx, m, text)
}

// Done removes the report.
func (h *Hypervisor) Done(ctx context.Context, m *machine.Machine) {
	if h != nil {
		h.replace(ctx, m, "")
	}
}

func (h *Hypervisor) replace(ctx context.Context, m *machine.Machine, text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	if err := h.send(ctx, m, text); err != nil {
		m.Logf("The hypervisor got no report: %v", err)
	}
}

const (
	// separator separates the step from the log.
	separator = " || "
	// shortest is the minimum length of a part of the log.
	shortest = 20
)

// noise is the part of a line that a report omits: the time, or klog's prefix.
var noise = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2}T[0-9:.]+Z |[IWEF]\d{4} [0-9:.]+ +\d+ [^ ]+\] )`)

// lastLines returns the last lines of the log on one line, without credentials
// and with at most this number of characters.
func lastLines(log string, most int) string {
	log = log[max(0, len(log)-logBytes):]
	// The part may begin within a key.
	begin, end := strings.Index(log, "-----BEGIN "), strings.Index(log, "-----END ")
	if end >= 0 && (begin < 0 || end < begin) {
		log = log[end:]
	}
	var lines []string
	for line := range strings.Lines(redact.Secrets(log)) {
		line = redact.Line(noise.ReplaceAllString(line, ""))
		if line != "" && !strings.Contains(line, "To see the stack trace of this error") {
			lines = append(lines, line)
		}
	}
	text := ""
	for i := len(lines) - 1; i >= max(0, len(lines)-logLines); i-- {
		line := cut(lines[i], most)
		if text == "" {
			text = line
			continue
		}
		if len(text)+len(line)+len(" | ") > most {
			break
		}
		text = line + " | " + text
	}
	return text
}

// cut shortens text. It has one byte for each character by then.
func cut(text string, most int) string { return text[:min(len(text), most)] }
