package hypervisor_test

import (
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
)

func TestParseReport(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want hypervisor.Report
	}{
		"Nothing":   {"", hypervisor.Report{}},
		"OtherText": {"Server Edition", hypervisor.Report{}},
		"NoStage":   {"nova: dancing: x", hypervisor.Report{}},
		"Running":   {"nova: running: kubeadm join", hypervisor.Report{Stage: hypervisor.StageRunning, Step: "kubeadm join"}},
		"Failed": {
			"nova: failed: preKubeadmCommands 0000 failed with status 3 || first | second: line",
			hypervisor.Report{Stage: hypervisor.StageFailed, Step: "preKubeadmCommands 0000 failed with status 3", Log: "first | second: line"},
		},
		"Unfinished":        {"nova: unfinished: x", hypervisor.Report{Stage: hypervisor.StageUnfinished, Step: "x"}},
		"ControlCharacters": {"nova: failed: a\x1b[31m\nb", hypervisor.Report{Stage: hypervisor.StageFailed, Step: "a [31m b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hypervisor.ParseReport(tc.text); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	if got := hypervisor.ParseReport("nova: failed: x || " + strings.Repeat("word ", 1000)); len(got.Log) > 2048 {
		t.Errorf("the log of a report has %d characters", len(got.Log))
	}
}

func TestParseReportHidesCredentials(t *testing.T) {
	for name, tc := range map[string]struct{ log, secret, stays string }{
		"Token":    {"join --token abcdef.0123456789abcdef to", "0123456789abcdef", "join"},
		"PEM":      {"key: -----BEGIN EC PRIVATE KEY----- MHcCAQEE -----END EC PRIVATE KEY----- end", "MHcCAQEE", "end"},
		"CutPEM":   {"-----BEGIN EC PRIVATE KEY----- MHcCAQEE", "MHcCAQEE", "BEGIN"},
		"URL":      {"proxy http://me:pa55@proxy.corp:3128 refused", "pa55", "proxy.corp:3128 refused"},
		"Password": {"password=hunter22 is wrong", "hunter22", "is wrong"},
		"Quoted":   {`"password": "hunter22 and more", next`, "and more", "next"},
		"Bearer":   {"Authorization: Bearer abcdefgh12345 denied", "abcdefgh12345", "denied"},
		"JWT":      {"got eyJhbGciOi.eyJzdWIi.sig back", "eyJzdWIi", "back"},
		"Base64":   {"data " + strings.Repeat("QUJD", 20) + " end", "QUJDQUJD", "end"},
	} {
		t.Run(name, func(t *testing.T) {
			got := hypervisor.ParseReport("nova: failed: x || " + tc.log).Log
			if strings.Contains(got, tc.secret) || !strings.Contains(got, tc.stays) {
				t.Errorf("shows %q", got)
			}
		})
	}
	const plain = "E: Unable to locate package foo | error execution phase kubelet-start: a kubelet is running"
	if got := hypervisor.ParseReport("nova: failed: x || " + plain).Log; got != plain {
		t.Errorf("a harmless log became %q", got)
	}
}
