package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// diagnostics is the address of the provider's metrics. The port is below the
// kernel's ephemeral range.
const diagnostics = "127.0.0.1:21845"

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
	s.createCluster()
	m := s.createMachine("measured")
	s.boot(m, "10.0.0.3/24")
	s.becomes(m, infrav1.ProvisionedReason)
	cluster := s.rig.Cluster().Name
	of := fmt.Sprintf(`{cluster=%q,kind="NovaVSphereMachine",namespace=%q,state="Provisioned"}`, cluster, s.rig.Namespace)
	server := fmt.Sprintf(`server=%q`, s.vc.Address)
	s.Eventually(func() (string, error) { return scraped(t.Context()) }).Should(And(
		ContainSubstring("\nnova_machines"+of+" 1\n"),
		ContainSubstring("\nnova_machines_longest_seconds"+of+" "),
		ContainSubstring(`nova_condition{condition="HypervisorAvailable",kind="NovaVSphereCluster",name="`+s.rig.InfraCluster().Name+
			`",namespace="`+s.rig.Namespace+`"} 1`),
		ContainSubstring(`nova_hypervisor_sessions{provider="vsphere",`+server+`,state="Up"} 1`),
		ContainSubstring(`nova_hypervisor_requests_total{code="",method="CloneVM_Task",provider="vsphere",result="success",`+server+`} 1`),
		ContainSubstring(`nova_hypervisor_stream_age_seconds{provider="vsphere",`+server+`} `),
		ContainSubstring(`nova_creations{`+server+`,state="InFlight"} 0`),
		ContainSubstring(`nova_machine_provision_seconds_count{kind="NovaVSphereMachine"} 1`),
	))
	s.delete(m)
	s.Eventually(func() (string, error) { return scraped(t.Context()) }).ShouldNot(ContainSubstring("\nnova_machines{"), "the series is deleted")
}
