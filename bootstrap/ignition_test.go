package bootstrap

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	ignition "github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
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
			want, files := configOf(t, render(t, in)), filesOf(t, render(t, in))
			in.Spec.Format = bootstrapv1.FormatIgnition
			document := render(t, in)
			config, got := validated(t, document), configOf(t, document)
			later := filesOf(t, document)
			for path, content := range files {
				if early := written(t, config, path); early != content && later[path] != content {
					t.Errorf("%s is %q or %q, want %q", path, early, later[path], content)
				}
			}
			want.Machine.Files, got.Machine.Files = nil, nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("configuration (-cloud-config +ignition):\n%s", diff)
			}
			if len(config.Systemd.Units) != 1 || !ptr.Deref(config.Systemd.Units[0].Enabled, false) {
				t.Errorf("the units are %v", config.Systemd.Units)
			}
			for _, f := range config.Storage.Files {
				if f.Path == nodeconfig.KeptConfigFile && *f.Mode != 0o600 {
					t.Errorf("%s has the mode %o", f.Path, *f.Mode)
				}
			}
		})
	}
}

// written returns a file that Ignition writes.
func written(t *testing.T, config types.Config, path string) string {
	t.Helper()
	for _, f := range config.Storage.Files {
		if f.Path != path {
			continue
		}
		content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(*f.Contents.Source, "data:;base64,"))
		if err != nil {
			t.Fatal(err)
		}
		if ptr.Deref(f.Contents.Compression, "") != "gzip" {
			return string(content)
		}
		reader, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if content, err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	return ""
}

// Ignition writes the user's files before the system starts, except for those
// that something would hide or that it cannot write.
func TestIgnitionWritesFilesOfTheUser(t *testing.T) {
	out := render(t, facts(JoinWorker, func(in *Input) {
		in.Spec.Format = bootstrapv1.FormatIgnition
		in.Spec.Disks = []bootstrapv1.Disk{{Device: "/dev/sdb", MountPath: "/var/lib/x"}}
		in.Spec.Files = []bootstrapv1.File{
			{Path: "/etc/hostname", Content: "own\n"}, {Path: "/etc/twice", Content: "1"}, {Path: "/etc/twice", Content: "2"},
			{Path: "/var/lib/x/y", Content: "below\n"}, {Path: "/run/z", Content: "memory\n"}, {Path: "/etc/hosts", Content: "more\n", Append: ptr.To(true)},
			{Path: "/etc/owned", Content: "ops\n", Owner: "ops"},
		}
	}))
	config, later := validated(t, out), filesOf(t, out)
	for path, want := range map[string][2]string{
		"/etc/hostname": {"own\n", ""}, "/etc/twice": {"", "2"}, "/var/lib/x/y": {"", "below\n"}, "/run/z": {"", "memory\n"},
		"/etc/hosts": {"", "more\n"}, "/etc/owned": {"ops\n", "ops\n"},
	} {
		if got := [2]string{written(t, config, path), later[path]}; got != want {
			t.Errorf("%s: Ignition and the agent write %q, want %q", path, got, want)
		}
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
