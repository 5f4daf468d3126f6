package kubeadm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// TestCoreDNSVersionsAreKubeadms fails when the constants of a pinned kubeadm and
// the table differ, as after an update of the pin.
func TestCoreDNSVersionsAreKubeadms(t *testing.T) {
	pins, err := filepath.Glob(filepath.Join(tools.Root(), "hack", "tools", "kubernetes*"))
	if err != nil || len(pins) < 2 {
		t.Fatalf("found %d modules of Kubernetes: %v", len(pins), err)
	}
	for _, pin := range pins {
		t.Run(filepath.Base(pin), func(t *testing.T) {
			dir, err := tools.ToolDir(t.Context(), filepath.Base(pin), "k8s.io/kubernetes")
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(filepath.Join(dir, "cmd", "kubeadm", "app", "constants", "constants.go"))
			if err != nil {
				t.Fatal(err)
			}
			found := regexp.MustCompile(`(?m)^\tCoreDNSVersion = "(v[^"]+)"$`).FindSubmatch(source)
			if found == nil {
				t.Fatal("kubeadm's constants have no CoreDNSVersion any more")
			}
			_, pinned, _ := strings.Cut(dir, "kubernetes@")
			v := version.MustParseSemantic(pinned)
			if got := coreDNSVersions[v.Minor()]; got != string(found[1]) {
				t.Errorf("with kubeadm %s CoreDNS is %s, and the table has %q", pinned, found[1], got)
			}
		})
	}
}

func TestUnknownVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   Upgrade
		known  bool
	}{
		"Known":    {reason: "it is in the table", want: Upgrade{Version: "v1.37.0"}, known: true},
		"Unknown":  {reason: "it is not", want: Upgrade{Version: "v1.99.0"}},
		"OwnImage": {reason: "the spec names one", want: Upgrade{Version: "v1.99.0", Configuration: []byte("dns: {imageTag: v1.20.0}")}, known: true},
		"Skipped":  {reason: "CoreDNS is managed by others", want: Upgrade{Version: "v1.99.0", SkipCoreDNS: true}, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := UnknownCoreDNS(tc.want); (got == "") != tc.known {
				t.Errorf("%s: got %q", tc.reason, got)
			}
		})
	}
}
