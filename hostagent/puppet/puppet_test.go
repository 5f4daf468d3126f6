package puppet

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

func TestOutcome(t *testing.T) {
	const resource = "/Stage[main]/Profile::Ssh/Exec[reload sshd]"
	for _, tc := range []struct {
		name     string
		code     int
		output   string
		enrolled bool
		good     bool
		reason   string
		message  string
	}{
		{name: "nothing to do", code: 0, enrolled: true, good: true, reason: "Applied", message: "The catalog is applied"},
		{name: "changed", code: 2, output: "Notice: changed\n", enrolled: true, good: true, reason: "Applied", message: "The catalog is applied"},
		{
			name: "a resource failed", code: 4, enrolled: true, reason: "ResourceFailed", message: resource + ": Failed to call refresh",
			output: "Error: 'systemctl' returned 1\nError: " + resource + ": Failed to call refresh\nError: /Stage[main]/Other: later\n",
		},
		{name: "changed, and a resource failed", code: 6, output: "Error: " + resource + ": x\n", enrolled: true, reason: "ResourceFailed", message: resource + ": x"},
		{
			name: "no catalog", code: 1, output: "Info: a\nError: Could not retrieve catalog\nError: next\n", enrolled: true,
			reason: "RunFailed", message: "Could not retrieve catalog",
		},
		{name: "no certificate", code: 1, output: "Error: not signed\n", reason: "NotEnrolled", message: "not signed"},
		{name: "not signed", code: 1, output: "Info: not signed yet\n", reason: "NotEnrolled", message: "The Puppet server has not signed the certificate request"},
		{
			name: "no connection", code: 1, output: "Error: Request to https://p:8140/puppet/v3 failed after 0.002 seconds: Connection refused\n", enrolled: true,
			reason: "RunFailed", message: "Request to https://p:8140/puppet/v3 failed: Connection refused",
		},
		{name: "killed", code: -1, enrolled: true, reason: "RunFailed", message: "Puppet reported no error; journalctl -u nova-puppet.service on the node shows its output"},
		{name: "a long error", code: 1, output: "Error: " + strings.Repeat("ы", 1000), enrolled: true, reason: "RunFailed", message: strings.Repeat("ы", 256)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := outcome(tc.code, tc.output, tc.enrolled)
			if got.Type != "ConfigurationApplied" || got.True != tc.good || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// reports are the conditions that a node has reported.
type reports struct {
	sync.Mutex

	reasons []string
}

func (r *reports) serve(t *testing.T, stop func(int)) *agenttest.Server {
	t.Helper()
	return agenttest.NewServer(t, func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPatch {
			var patch struct {
				Status struct {
					Conditions []struct{ Type, Reason string } `json:"conditions"`
				} `json:"status"`
			}
			if err := json.NewDecoder(request.Body).Decode(&patch); err != nil || len(patch.Status.Conditions) != 1 {
				t.Errorf("%s got %+v (%v)", request.URL, patch, err)
				return
			}
			r.Lock()
			r.reasons = append(r.reasons, patch.Status.Conditions[0].Reason)
			stop(len(r.reasons))
			r.Unlock()
		}
		agenttest.Respond(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n"}})
	})
}

func manager() *nodeconfig.ConfigurationManager {
	return &nodeconfig.ConfigurationManager{
		Server: "puppet.corp", CA: "CA", Environment: "production", IntervalSeconds: 1800, Certname: "n.uid", Token: "t0ken",
		Extensions: []nodeconfig.Setting{{Name: "pp_role", Value: "worker"}},
	}
}

func TestStart(t *testing.T) {
	m := agenttest.New(t, map[string]string{"systemctl": `echo "$*" >>"$T/units"`})
	for range 2 {
		if err := Start(t.Context(), m.Machine, "n", manager()); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"etc/nova/puppet/csr_attributes.yaml":  `{"custom_attributes":{"challengePassword":"t0ken"},"extension_requests":{"pp_role":"worker"}}` + "\n",
		"var/lib/nova/puppet/ssl/certs/ca.pem": "CA",
		"units":                                strings.Repeat("enable --now nova-puppet.service\n", 2),
	} {
		if got := m.Get(path); got != want {
			t.Errorf("%s is %q", path, got)
		}
	}
	if got := m.Get("etc/nova/puppet/puppet.conf"); !strings.Contains(got, "hostcert_renewal_interval = 0\n") {
		t.Errorf("Puppet 8 would request a permission that the server refuses: %q", got)
	}
	if got := m.Get("etc/nova/puppet/puppet.conf"); !strings.Contains(got, "server = puppet.corp\ncertname = n.uid\nenvironment = production\n") {
		t.Errorf("puppet.conf is %q", got)
	}
}

// The first attempt gets no certificate, the second one succeeds.
func TestRun(t *testing.T) {
	m := agenttest.New(t, map[string]string{"systemctl": ":", "puppet": `
echo "$*" >>"$T/runs"
[ $(wc -l <"$T/runs") = 1 ] && { echo "Error: not signed yet" >&2; exit 1; }
echo certificate >"$T/var/lib/nova/puppet/ssl/certs/n.uid.pem"
[ $(wc -l <"$T/runs") = 2 ] && exit 2
echo "Error: /Stage[main]/Main/Exec[x]: failed" >&2; exit 4`})
	if err := Start(t.Context(), m.Machine, "n", manager()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got reports
	server := got.serve(t, func(count int) {
		if count == 3 {
			cancel()
		}
	})
	m.Put("etc/kubernetes/kubelet.conf", server.Kubeconfig())
	if err := Run(ctx, m.Machine); err != nil {
		t.Fatal(err)
	}
	if reasons := strings.Join(got.reasons, " "); reasons != "NotEnrolled Applied ResourceFailed" {
		t.Errorf("reported %s", reasons)
	}
	if m.Waits(time.Minute) != 1 || m.Waits(30*time.Minute) == 0 {
		t.Errorf("waited %q", m.Get("waits"))
	}
	if m.There("etc/nova/puppet/csr_attributes.yaml") || strings.Contains(m.Get("var/lib/nova/puppet.json"), "t0ken") {
		t.Error("the token that was used stays on the disk")
	}
	if run := m.Get("runs"); !strings.Contains(run, "--no-usecacheonfailure") {
		t.Errorf("the agent would apply an old catalog: %s", run)
	}
}
