package hypervisor_test

import (
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

// FuzzParseReport parses texts that a guest could report. The result must be a
// bounded line of text without credentials.
func FuzzParseReport(f *testing.F) {
	for _, text := range []string{
		"", "Server Edition", "nova: running: kubeadm join", "nova: failed: x || first | second", "nova: failed: a\x1b[31m\nb", "nova: unfinished: ",
		"nova: failed: x || -----BEGIN EC PRIVATE KEY----- MHcCAQEE", "nova: retrying: http://me:pa55@proxy.corp || token=abcdef.0123456789abcdef",
		"nova: failed: \xff\xfe || " + strings.Repeat("://", 700), "nova: failed: " + strings.Repeat("é", 3000),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := hypervisor.ParseReport(text)
		switch got.Stage {
		case "":
			if got != (hypervisor.Report{}) {
				t.Fatalf("a text without a stage became %+v", got)
			}
		case hypervisor.StageRunning, hypervisor.StageRetrying, hypervisor.StageFailed, hypervisor.StageUnfinished:
		default:
			t.Fatalf("the stage is %q", got.Stage)
		}
		for _, shown := range []string{got.Step, got.Log} {
			// The replacement of a credential of one character has three characters.
			if len(shown) > 3*2048 {
				t.Fatalf("%d characters are shown", len(shown))
			}
			if strings.ContainsFunc(shown, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q is not one line of printable text", shown)
			}
			if _, key, found := strings.Cut(shown, "PRIVATE KEY-----"); found && strings.HasPrefix(shown, "-----BEGIN EC") && !strings.HasPrefix(key, "***") {
				t.Fatalf("%q shows a key", shown)
			}
		}
	})
}
