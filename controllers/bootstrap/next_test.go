package bootstrap

import (
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		observed
		want dataAction
	}{
		"New":                   {"data needs the infrastructure", observed{}, waitForInfrastructure},
		"NoEndpoint":            {"data names the endpoint", observed{infrastructure: true}, waitForEndpoint},
		"Ready":                 {"all inputs are available", observed{infrastructure: true, endpoint: true}, write},
		"Stored":                {"data is created once", observed{stored: true, infrastructure: true, endpoint: true}, publish},
		"StoredAfterMove":       {"a moved cluster's status is empty for a while", observed{stored: true}, publish},
		"Stale":                 {"unused data", observed{stored: true, stale: true, infrastructure: true, endpoint: true}, write},
		"StaleAfterMove":        {"facts are restored first", observed{stored: true, stale: true}, waitForInfrastructure},
		"Used":                  {"used data stays", observed{stored: true, stale: true, joined: true, infrastructure: true, endpoint: true}, publish},
		"UsedAndGone":           {"used data is not recreated", observed{joined: true, infrastructure: true, endpoint: true}, publish},
		"DeletedBeforeItIsUsed": {"lost data is recreated", observed{infrastructure: true, endpoint: true}, write},
	} {
		t.Run(name, func(t *testing.T) {
			if got := next(tc.observed); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestHasJoined(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clusterv1.Machine)
		want   bool
	}{
		"New":         {func(*clusterv1.Machine) {}, false},
		"Provisioned": {func(m *clusterv1.Machine) { m.Status.Initialization.InfrastructureProvisioned = ptr.To(true) }, false},
		"Joined":      {func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n" }, true},
		"Moved":       {func(m *clusterv1.Machine) { m.Spec.ProviderID = "vsphere://u" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{machine: &clusterv1.Machine{}}
			tc.change(s.machine)
			if got := s.hasJoined(); got != tc.want {
				t.Errorf("hasJoined() = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestMode(t *testing.T) {
	for name, tc := range map[string]struct {
		controlPlane, held bool
		want               bootstrap.Mode
	}{
		"Worker":  {false, false, bootstrap.JoinWorker},
		"Holder":  {true, true, bootstrap.Init},
		"Another": {true, false, bootstrap.JoinControlPlane},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mode(tc.controlPlane, tc.held); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
