package bootstrap

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// The script starts the agent of the image or the one that the platform names,
// and no other program.
func TestAgentIsStarted(t *testing.T) {
	agent := func(name string) string { return "#!/bin/sh\necho " + name + " $*\n" }
	sum := sha256.Sum256([]byte(agent("named")))
	named := bootstrapv1.HostAgentSpec{URL: "https://universe.corp/a", SHA256: hex.EncodeToString(sum[:])}
	for name, tc := range map[string]struct {
		reason string
		spec   bootstrapv1.HostAgentSpec
		// image is the agent of the image, and served the one at the URL.
		image, served string
		want          string
	}{
		"Image":      {reason: "the image has one", image: agent("image"), want: "image bootstrap\n"},
		"None":       {reason: "nothing can run"},
		"Downloaded": {reason: "the image has none", spec: named, served: agent("named"), want: "named bootstrap\n"},
		"Replaced":   {reason: "the platform names another one", spec: named, image: agent("image"), served: agent("named"), want: "named bootstrap\n"},
		"Same":       {reason: "the image has it already", spec: named, image: agent("named"), served: agent("other"), want: "named bootstrap\n"},
		"OtherBytes": {reason: "the download is not the one that is named", spec: named, image: agent("image"), served: agent("other")},
		"NoServer":   {reason: "it cannot be downloaded", spec: named},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			// One folder cannot be written to.
			script := strings.NewReplacer("/usr/local/bin", dir+"/served/bin", "/opt/bin", dir+"/opt", "/var/lib/nova", dir+"/nova").
				Replace(startScript(&Input{Platform: bootstrapv1.PlatformSpec{HostAgent: tc.spec}}))
			curl := "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = -o ] && to=$2; shift; done\n[ \"$1\" = https://universe.corp/a ] && cp \"" + dir + "/served\" \"$to\"\n"
			for path, content := range map[string]string{"bin/nova-host-agent": tc.image, "served": tc.served, "bin/curl": curl} {
				if content == "" {
					continue
				}
				path = filepath.Join(dir, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o700)); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.CommandContext(t.Context(), "sh", "-c", script)
			command.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin"}
			out, err := command.Output()
			if string(out) != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s: err = %v, ran %q, want %q", tc.reason, err, out, tc.want)
			}
		})
	}
}
