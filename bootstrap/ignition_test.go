package bootstrap

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
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

// Each shape has the same files in both formats, with the same permissions.
func TestIgnitionHasTheSameContent(t *testing.T) {
	for name, in := range shapes() {
		t.Run(name, func(t *testing.T) {
			want := filesOf(t, render(t, in))
			permissions, owners, appended := map[string]string{}, map[string]string{}, map[string]bool{}
			document := read(t, render(t, in))
			for _, f := range document.WriteFiles {
				permissions[f.Path], owners[f.Path], appended[f.Path] = f.Permissions, f.Owner, f.Append
			}
			owners["/etc/hostname"] = "root:root"
			want["/etc/hostname"], permissions["/etc/hostname"] = "blue-abc12\n", "0644"
			in.Spec.Format = bootstrapv1.FormatIgnition
			got := map[string]string{}
			config := validated(t, render(t, in))
			for _, f := range config.Storage.Files {
				where := strings.Replace(f.Path, firstBootDir, runDir, 1)
				resource := f.Contents
				if len(f.Append) > 0 {
					resource = f.Append[0]
				}
				content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(*resource.Source, "data:;base64,"))
				if err != nil {
					t.Fatal(err)
				}
				got[where] = string(content)
				if ptr.Deref(resource.Compression, "") == "gzip" {
					got[where] = unpacked(t, got[where])
				}
				owner := ptr.Deref(f.User.Name, "root") + ":" + ptr.Deref(f.Group.Name, "root")
				if owner != owners[where] || len(f.Append) > 0 != appended[where] {
					t.Errorf("%s is %s's and appended=%t, want %s and %t", where, owner, len(f.Append) > 0, owners[where], appended[where])
				}
				if mode := "0" + octal(*f.Mode); mode != permissions[where] {
					t.Errorf("%s is %s, want %s", where, mode, permissions[where])
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("files (-cloud-config +ignition):\n%s", diff)
			}
			// The only unit runs the command that cloud-init runs on the first
			// boot.
			run := strings.Join(document.RunCmd[0], " ")
			if len(document.RunCmd) != 1 || len(config.Systemd.Units) != 1 || !ptr.Deref(config.Systemd.Units[0].Enabled, false) ||
				!strings.Contains(*config.Systemd.Units[0].Contents, "exec "+run+"'\n") {
				t.Errorf("cloud-init runs %v, and the units are %v", document.RunCmd, config.Systemd.Units)
			}
		})
	}
}

func octal(mode int) string {
	digits := ""
	for ; mode > 0; mode >>= 3 {
		digits = string(rune('0'+mode&7)) + digits
	}
	return digits
}

func TestIgnitionGolden(t *testing.T) {
	got := render(t, facts(JoinWorker, func(in *Input) {
		everything(in)
		in.Spec.Format = bootstrapv1.FormatIgnition
	}))
	golden := filepath.Join("testdata", "join-worker-everything.ign")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run with -update if this is meant (-want +got):\n%s", diff)
	}
}

// The later of two files at the same path is used, and Ignition rejects
// duplicate paths.
func TestIgnitionTakesPathsOnce(t *testing.T) {
	config := validated(t, render(t, facts(JoinWorker, func(in *Input) {
		in.Spec.Format = bootstrapv1.FormatIgnition
		in.Spec.Files = []bootstrapv1.File{{Path: "/etc/hostname", Content: "own\n"}}
	})))
	var found []types.File
	for _, f := range config.Storage.Files {
		if f.Path == "/etc/hostname" {
			found = append(found, f)
		}
	}
	if len(found) != 1 || *found[0].Contents.Source != "data:;base64,b3duCg==" {
		t.Errorf("found %+v", found)
	}
}

func TestIgnitionCannotWriteToRun(t *testing.T) {
	_, err := Render(facts(JoinWorker, func(in *Input) {
		in.Spec.Format = bootstrapv1.FormatIgnition
		in.Spec.Files = []bootstrapv1.File{{Path: "/run/x", Content: "x"}}
	}))
	var malformed *RenderError
	if !errors.As(err, &malformed) || malformed.Field != "spec.files[/run/x]" {
		t.Errorf("err = %v", err)
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
		for size, fits := range map[int]bool{maxDocument / 2: true, maxDocument: false} {
			_, err := Render(facts(JoinWorker, func(in *Input) {
				in.Spec.Format = format
				in.Spec.Files = []bootstrapv1.File{{Path: "/etc/x", Content: strings.Repeat("x", size)}}
			}))
			if fits != (err == nil) || !fits && !strings.Contains(err.Error(), "spec.files: the machine's "+string(format)+" document has") {
				t.Errorf("%s of %d: %v", format, size, err)
			}
		}
	}
}
