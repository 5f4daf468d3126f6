package bed

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nova-platform/cluster-api-provider-nova/bootstrap"
)

// A simulated node reads the bootstrap data that the bootstrap provider writes.
func TestParseBootData(t *testing.T) {
	endpoint := bootstrap.Endpoint{Host: "10.77.0.10", Port: 6443}
	network := bootstrap.Network{Services: []string{"10.96.0.0/16"}}
	join := &bootstrap.JoinCredentials{CA: []byte("ca"), Certificate: []byte("certificate"), Key: []byte("key")}
	for mode, want := range map[bootstrap.Mode]struct {
		configured bool
		services   string
		taints     int
	}{
		bootstrap.Init:             {configured: true, services: "10.96.0.0/16"},
		bootstrap.JoinControlPlane: {},
		bootstrap.JoinWorker:       {taints: 1},
	} {
		data, err := bootstrap.Render(bootstrap.Input{Mode: mode, ClusterName: "blue", Machine: "blue-1", Version: "v1.36.3", Endpoint: endpoint, Network: network, Join: join})
		if err != nil {
			t.Fatal(err)
		}
		boot, err := parseBootData(data)
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if got := strings.Contains(string(boot.configuration), "kind: ClusterConfiguration"); got != want.configured {
			t.Errorf("%s: has a ClusterConfiguration: %t, want %t", mode, got, want.configured)
		}
		if got := boot.network.ServiceSubnet; got != want.services {
			t.Errorf("%s: Services have %q, want %q", mode, got, want.services)
		}
		if got := len(boot.registration.Taints); want.taints > 0 && got != want.taints {
			t.Errorf("%s: %d taints, want %d", mode, got, want.taints)
		}
	}
	for _, broken := range []string{"#cloud-config\n", "{"} {
		if _, err := parseBootData([]byte(broken)); err == nil {
			t.Errorf("%q is accepted", broken)
		}
	}
}

func TestRootlessRefusesWhatNeedsRoot(t *testing.T) {
	for name, options := range map[string]Options{
		"hosts": {Rootless: true},
		"Flux":  {Rootless: true, Bodiless: true, Flux: true},
	} {
		if err := options.supported(); err == nil || !strings.Contains(err.Error(), "rootless") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestRootlessAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		bed  *Bed
		want []string
	}{
		"root":     {&Bed{}, []string{"https://127.0.0.1:6443", "10.77.0.1:443"}},
		"rootless": {&Bed{rootless: true}, []string{"https://127.0.0.1:26443", "127.77.0.1:20443"}},
	} {
		if diff := cmp.Diff(tc.want, []string{tc.bed.managementServer(), tc.bed.address(vcenterPort)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
