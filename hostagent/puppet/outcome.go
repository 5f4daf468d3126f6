package puppet

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/cluster"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// Exit codes of an agent with --detailed-exitcodes. 1 means that no catalog was
// applied.
const (
	unchanged      = 0
	changed        = 2
	failures       = 4
	changeFailures = 6
)

// noError is the text if the agent failed without an error.
const noError = "Puppet reported no error; journalctl -u " + Unit + " on the node shows its output"

// duration is a part of errors about connections that differs from run to run. Without
// it, the Node is not changed each time.
var duration = regexp.MustCompile(` after [0-9.]+ seconds`)

// maxText limits the text in the condition, in bytes.
const maxText = 512

// outcome returns the condition that describes a run.
func outcome(code int, output string, enrolled bool) cluster.Condition {
	switch {
	case code == unchanged, code == changed:
		// The text is the same after each run, so that the Node is not changed.
		return cluster.Condition{Type: nodeconfig.ConfigurationCondition, True: true, Reason: nodeconfig.AppliedReason, Message: "The catalog is applied"}
	case code == failures, code == changeFailures:
		return failed(nodeconfig.ResourceFailedReason, cmp.Or(errorLine(output, "/Stage["), noError))
	case !enrolled:
		return failed(nodeconfig.NotEnrolledReason, cmp.Or(errorLine(output, ""), "The Puppet server has not signed the certificate request"))
	}
	return failed(nodeconfig.PuppetRunFailedReason, cmp.Or(errorLine(output, ""), noError))
}

// errorLine returns the first error in the output of the agent that begins with a
// prefix, or else the first error, if there is one. The errors of a resource begin with its path.
func errorLine(output, prefix string) string {
	first := ""
	for line := range strings.Lines(output) {
		text, is := strings.CutPrefix(strings.TrimSpace(line), "Error: ")
		if is && strings.HasPrefix(text, prefix) {
			return text
		}
		if is && first == "" {
			first = text
		}
	}
	return first
}

func failed(reason, text string) cluster.Condition {
	text = duration.ReplaceAllString(text, "")
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "")
	return cluster.Condition{Type: nodeconfig.ConfigurationCondition, Reason: reason, Message: text}
}
