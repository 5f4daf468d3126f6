package bootstrap

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	ignition "github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// validated parses a document as Ignition does, and fails on warnings.
func validated(t *testing.T, document []byte) types.Config {
	t.Helper()
	config, report, err := ignition.Parse(document)
	if err != nil || len(report.Entries) > 0 {
		t.Fatalf("%v\n%s", err, report.String())
	}
	return config
}

// Each shape has the same configuration in both formats, except for the kernel
// arguments, which Ignition sets itself.
func TestIgnitionHasTheSameContent(t *testing.T) {
	for name, in := range shapes() {
		t.Run(name, func(t *testing.T) {
			want := configOf(t, render(t, in))
			in.Spec.Format = bootstrapv1.FormatIgnition
			document := render(t, in)
			config := validated(t, document)
			if diff := cmp.Diff(want, configOf(t, document)); diff != "" {
				t.Errorf("configuration (-cloud-config +ignition):\n%s", diff)
			}
			if len(config.Systemd.Units) != 1 || !ptr.Deref(config.Systemd.Units[0].Enabled, false) {
				t.Errorf("the units are %v", config.Systemd.Units)
			}
			for _, f := range config.Storage.Files {
				if private := f.Path == keptConfigFile; private != (*f.Mode == 0o600) {
					t.Errorf("%s has the mode %o", f.Path, *f.Mode)
				}
			}
		})
	}
}

func TestIgnitionSetsKernelArguments(t *testing.T) {
	in := facts(JoinWorker, func(in *Input) { in.Spec.Kernel.Arguments = []string{"hugepagesz=1G"} })
	if got := configOf(t, render(t, in)).Machine.KernelArguments; len(got) != 1 {
		t.Errorf("the agent sets %v", got)
	}
	in.Spec.Format = bootstrapv1.FormatIgnition
	if diff := cmp.Diff([]types.KernelArgument{"hugepagesz=1G"}, validated(t, render(t, in)).KernelArguments.ShouldExist); diff != "" {
		t.Errorf("Ignition's arguments (-want +got):\n%s", diff)
	}
	if got := configOf(t, render(t, in)).Machine.KernelArguments; len(got) != 0 {
		t.Errorf("the agent would reboot for %v", got)
	}
}

// The validator must be able to reject a document.
func TestIgnitionValidatorRefuses(t *testing.T) {
	_, report, err := ignition.Parse([]byte(`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"relative"}]}}`))
	if err == nil || !report.IsFatal() {
		t.Error("a relative path is taken")
	}
}

func TestTooLongDocuments(t *testing.T) {
	for _, format := range []bootstrapv1.Format{bootstrapv1.FormatCloudConfig, bootstrapv1.FormatIgnition} {
		for size, fits := range map[int]bool{maxDocument / 3: true, maxDocument: false} {
			_, err := Render(facts(JoinWorker, func(in *Input) {
				in.Spec.Format = format
				in.Spec.Files = []bootstrapv1.File{{Path: "/etc/x", Content: incompressible(t, size), Encoding: bootstrapv1.ContentEncodingBase64}}
			}))
			if fits != (err == nil) || !fits && !strings.Contains(err.Error(), "spec.files: the machine's "+string(format)+" document has") {
				t.Errorf("%s of %d: %v", format, size, err)
			}
		}
	}
}

// incompressible returns random bytes in base64.
func incompressible(t *testing.T, size int) string {
	t.Helper()
	content := make([]byte, size)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(content)
}
