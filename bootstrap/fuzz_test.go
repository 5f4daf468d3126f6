package bootstrap

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// FuzzRender renders user input. The result must be a document with the same
// content, or an error that names a field.
func FuzzRender(f *testing.F) {
	for _, content := range []string{
		"plain\n", "a: \"{{ .Version }}\"\n\t'x' $y\n", "{{ .Cluster.Name", "\x00\xff", "---\nruncmd: [evil]\n", "#cloud-config\n", "", "H4sIAAAAAAAA/wMAAAAAAAAAAAA=",
		`{{ range .Roles }}{{ . }}{{ end }}`, "\u2028\r\n", "EOF\n\"", "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}",
	} {
		for _, kind := range []byte{0, 1, 2, 3} {
			f.Add(kind, false, "/etc/x", content, "echo "+content)
			f.Add(kind, true, "/run/nova/settings", content, content)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, ignition bool, path, content, command string) {
		file := bootstrapv1.File{Path: path, Content: content}
		switch kind % 4 {
		case 1:
			file.ContentFormat = bootstrapv1.ContentFormatTemplate
		case 2:
			file.Encoding = bootstrapv1.ContentEncodingBase64
		case 3:
			file.Encoding = bootstrapv1.ContentEncodingGzipBase64
		}
		command = strings.ToValidUTF8(command, "") // as in every object of an API server
		in := facts(JoinWorker, func(in *Input) {
			in.Spec.Files, in.Spec.PreKubeadmCommands = []bootstrapv1.File{file}, []string{command}
			if ignition {
				in.Spec.Format = bootstrapv1.FormatIgnition
			}
		})
		out, err := Render(in)
		if err != nil {
			if problem := (*RenderError)(nil); !errors.As(err, &problem) {
				t.Fatalf("err = %v, want a RenderError", err)
			}
			return
		}
		if len(out) > maxDocument {
			t.Fatalf("the document has %d bytes", len(out))
		}
		if !ignition {
			var document map[string]any
			var around cloudConfig
			if err := errors.Join(yaml.Unmarshal(out, &document), yaml.UnmarshalStrict(out, &around)); err != nil {
				t.Fatal(err)
			}
			if len(document) != 2 || len(around.RunCmd) != 1 || len(around.RunCmd[0]) != 3 || !strings.HasSuffix(around.RunCmd[0][2], "exec \"$agent\" bootstrap") {
				t.Fatalf("the document runs %v", around.RunCmd)
			}
		}
		config := configOf(t, out)
		last := config.Machine.Files[len(config.Machine.Files)-1]
		if last.Path != path {
			t.Fatalf("the file %q became %q", path, last.Path)
		}
		if kind%4 == 0 && last.Text+string(last.Data) != content {
			t.Fatalf("%q became %q", content, last.Text+string(last.Data))
		}
		if !slices.Equal(config.Join.Before, []string{command}) {
			t.Fatalf("the command %q became %q", command, config.Join.Before)
		}
	})
}
