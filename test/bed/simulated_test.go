package bed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// A simulated node reads the bootstrap data that the bootstrap provider writes.
func TestParseBootData(t *testing.T) {
	for file, want := range map[string]struct {
		configured bool
		services   string
		taints     int
	}{
		"init.yaml":               {configured: true, services: "10.96.0.0/16"},
		"join-control-plane.yaml": {},
		"join-worker.yaml":        {taints: 1},
	} {
		data, err := os.ReadFile(filepath.Join(tools.Root(), "bootstrap", "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		boot, err := parseBootData(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got := strings.Contains(string(boot.configuration), "kind: ClusterConfiguration"); got != want.configured {
			t.Errorf("%s: has a ClusterConfiguration: %t, want %t", file, got, want.configured)
		}
		if got := boot.network.ServiceSubnet; got != want.services {
			t.Errorf("%s: Services have %q, want %q", file, got, want.services)
		}
		if got := len(boot.registration.Taints); want.taints > 0 && got != want.taints {
			t.Errorf("%s: %d taints, want %d", file, got, want.taints)
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
