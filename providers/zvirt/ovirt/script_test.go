package ovirt

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// engines is the document that the engine prepends to a script.
const engines = "#cloud-config\nssh_pwauth: true\ndisable_root: 0\noutput:\n  all: '>> /var/log/cloud-init-output.log'\n" +
	"runcmd:\n- 'sed -i x'\nchpasswd:\n  expire: false\n"

func TestCloudConfig(t *testing.T) {
	tests := map[string]struct {
		in       string
		want     string
		rejected string
	}{
		"reverts access that the engine allows": {
			in:   "#cloud-config\nruncmd:\n- a < b && c\n",
			want: "#cloud-config\nruncmd:\n- a < b && c\ndisable_root: true\nssh_pwauth: false\n",
		},
		"keeps explicit settings": {
			in:   "#cloud-config\nssh_pwauth: true\ndisable_root: false",
			want: "#cloud-config\nssh_pwauth: true\ndisable_root: false\n",
		},
		"writes a flow mapping in blocks": {
			in:   "#cloud-config\n{runcmd: [x]}\n",
			want: "#cloud-config\nruncmd:\n- x\ndisable_root: true\nssh_pwauth: false\n",
		},
		"removes document markers": {
			in:   "#cloud-config\n---\nruncmd: [x]\n",
			want: "#cloud-config\nruncmd:\n- x\ndisable_root: true\nssh_pwauth: false\n",
		},
		"removes an indentation": {
			in:   "#cloud-config\n  runcmd: [x]\n",
			want: "#cloud-config\nruncmd:\n- x\ndisable_root: true\nssh_pwauth: false\n",
		},
		"comments before the first key are fine": {
			in:   "#cloud-config\n\n# hello\n\"runcmd\": [x]\n",
			want: "#cloud-config\n\n# hello\n\"runcmd\": [x]\ndisable_root: true\nssh_pwauth: false\n",
		},
		"script":   {in: "#!/bin/sh\n", rejected: "first line"},
		"template": {in: "## template: jinja\n#cloud-config\n", rejected: "first line"},
		"MIME":     {in: "Content-Type: multipart/mixed\n", rejected: "first line"},
		"no YAML":  {in: "#cloud-config\na: [\n", rejected: "not YAML"},
		"list":     {in: "#cloud-config\n- a\n", rejected: "not YAML"},
		"too long": {in: "#cloud-config\n" + strings.Repeat("#", MaxScript), rejected: "it has 513 KiB, and an engine can pass on 512 KiB at most; compress"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := CloudConfig([]byte(tt.in))
			if tt.rejected != "" {
				if err == nil || !strings.Contains(err.Error(), tt.rejected) {
					t.Fatalf("got %q, %v; want an error with %q", got, err, tt.rejected)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("got %q, %v\nwant %q", got, err, tt.want)
			}
			// cloud-init uses the last of two equal keys, as this parser does.
			var both map[string]any
			if err := yaml.Unmarshal([]byte(engines+got), &both); err != nil {
				t.Fatalf("behind the engine's document: %v", err)
			}
		})
	}
}

func TestIgnition(t *testing.T) {
	if _, err := Ignition([]byte("{")); err == nil {
		t.Error("broken JSON was accepted")
	}
	if _, err := Ignition([]byte(`"` + strings.Repeat("x", MaxScript) + `"`)); err == nil {
		t.Error("a document that is too long was accepted")
	}
	if got, err := Ignition([]byte(`{"a":1}`)); err != nil || got != `{"a":1}` {
		t.Errorf("got %q, %v", got, err)
	}
}
