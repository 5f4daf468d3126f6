package ovirt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"
)

// MaxScript is the maximum size of bootstrap data. The engine has no limit of
// its own, but the document is part of the VM's definition on the host, where a
// text is limited to 4 MiB, and is encoded as base64 there.
const MaxScript = 1 << 19

const cloudConfig = "#cloud-config"

// plainKey matches the start of a document that can be appended unchanged: a
// mapping in block style whose keys are not indented.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_"'-]`)

// marker separates documents of a stream, or ends one.
var marker = regexp.MustCompile(`(?m)^(---|\.\.\.|%)`)

// CloudConfig converts a #cloud-config document to a VM's custom script.
//
// The engine writes its own #cloud-config document and appends the script, so
// both are one mapping, in which the last of two equal keys is used. Ours is
// the last: its keys take precedence, and runcmd replaces the engine's.
// Settings of the engine that allow access to a node, which our document does
// not set, are reverted: logging in as root and by password.
func CloudConfig(document []byte) (string, error) {
	if len(document) > MaxScript {
		return "", tooLong(document)
	}
	if line, _, _ := bytes.Cut(document, []byte("\n")); string(bytes.TrimSpace(line)) != cloudConfig {
		return "", errors.New("its first line is not " + cloudConfig + ", and the engine can pass nothing else on: no scripts, archives, templates or compressed data")
	}
	var parsed map[string]any
	if err := yaml.Unmarshal(document, &parsed); err != nil {
		return "", fmt.Errorf("it is not YAML: %w", err)
	}
	if !appendable(document) {
		body, err := yaml.Marshal(parsed)
		if err != nil {
			return "", fmt.Errorf("writing it as YAML: %w", err)
		}
		document = append([]byte(cloudConfig+"\n"), body...)
	}
	out := bytes.NewBuffer(bytes.TrimRight(document, "\n"))
	out.WriteByte('\n')
	for _, closed := range []struct{ key, line string }{{"disable_root", "disable_root: true\n"}, {"ssh_pwauth", "ssh_pwauth: false\n"}} {
		if _, ok := parsed[closed.key]; !ok {
			out.WriteString(closed.line)
		}
	}
	return out.String(), nil
}

// appendable reports whether a document can be appended unchanged.
func appendable(document []byte) bool {
	if marker.Match(document) {
		return false
	}
	for line := range bytes.Lines(document) {
		text := bytes.TrimSpace(line)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		return plainKey.Match(line)
	}
	return false
}

// Ignition converts an Ignition document to a VM's custom script.
func Ignition(document []byte) (string, error) {
	switch {
	case len(document) > MaxScript:
		return "", tooLong(document)
	case !json.Valid(document):
		return "", errors.New("it is not JSON, and the engine reads it")
	}
	return string(document), nil
}

func tooLong(document []byte) error {
	return fmt.Errorf("it has %d KiB, and an engine can pass on %d KiB at most; compress large files of the NovaConfig (encoding Gzip), or have a command fetch them",
		(len(document)+1023)>>10, MaxScript>>10)
}
