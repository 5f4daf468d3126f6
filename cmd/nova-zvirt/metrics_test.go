package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/infratest"
)

// diagnostics is the address of the provider's metrics. The port is below the
// kernel's ephemeral range.
const diagnostics = "127.0.0.1:21846"

// scraped returns the provider's metrics.
func scraped(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+diagnostics+"/metrics", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	return string(body), response.Body.Close()
}

// The provider itself exports the metrics of the alerts and the dashboard, by
// cluster and by server.
func TestProviderTellsPrometheus(t *testing.T) {
	s := newScene(t)
	s.run()
	cluster := s.createCluster()
	m := s.createMachine("measured")
	s.boot(m, "10.0.0.3/24")
	s.becomes(m, infrav1.VirtualMachineProvisionedCondition, infrav1.ProvisionedReason)
	of := fmt.Sprintf(`{cluster=%q,kind="NovaZVirtMachine",namespace=%q,state="Provisioned"}`, infratest.ClusterName, s.rig.Namespace)
	address, err := url.Parse(s.engine.URL)
	s.Expect(err).NotTo(HaveOccurred())
	server := fmt.Sprintf(`server=%q`, address.Host)
	s.Eventually(func() (string, error) { return scraped(t.Context()) }).Should(And(
		ContainSubstring("\nnova_machines"+of+" 1\n"),
		ContainSubstring("\nnova_machines_longest_seconds"+of+" "),
		ContainSubstring(`nova_condition{condition="HypervisorAvailable",kind="NovaZVirtCluster",name="`+cluster.Name+
			`",namespace="`+s.rig.Namespace+`"} 1`),
		ContainSubstring(`nova_hypervisor_sessions{provider="zvirt",`+server+`,state="Up"} 1`),
		MatchRegexp(`nova_hypervisor_requests_total\{code="20[0-9]",method="POST /vms",provider="zvirt",result="success",`+server+`\} 1`),
		ContainSubstring(`nova_hypervisor_request_seconds_count{method="POST /vms",provider="zvirt",`+server+`} 1`),
		ContainSubstring(`nova_hypervisor_connections{provider="zvirt",`+server+`} `),
		ContainSubstring(`nova_creations{`+server+`,state="InFlight"} 0`),
	))
}
