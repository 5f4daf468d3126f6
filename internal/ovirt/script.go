package ovirt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"
)

// MaxScript is how long a first-boot document may be. The engine has no limit
// of its own, but the document travels in the VM's definition to the host,
// where one text can have 4 MiB, and is written as base64 there.
const MaxScript = 1 << 19

const cloudConfig = "#cloud-config"

// plainKey begins a document that can stand behind another as it is: a mapping
// in block style whose keys are not indented.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_"'-]`)

// marker separates documents of a stream, or ends one.
var marker = regexp.MustCompile(`(?m)^(---|\.\.\.|%)`)

// CloudConfig makes a #cloud-config document fit for a VM's custom script.
//
// The engine writes a #cloud-config document of its own and puts the script
// behind it, so both are one mapping, in which the last of two equal keys
// counts. Ours is the last: its keys hold as they are said, and runcmd
// replaces the engine's. What the engine says and ours does not is taken back
// where it opens a node: logging in as root and by password.
func CloudConfig(document []byte) (string, error) {
	if len(document) > MaxScript {
		return "", tooLong(document)
	}
	if line, _, _ := bytes.Cut(document, []byte("\n")); string(bytes.TrimSpace(line)) != cloudConfig {
		return "", errors.New("its first line is not " + cloudConfig + ", and the engine can pass nothing else on: no scripts, archives, templates or compressed data")
	}
	var said map[string]any
	if err := yaml.Unmarshal(document, &said); err != nil {
		return "", fmt.Errorf("it is not YAML: %w", err)
	}
	if !appendable(document) {
		body, err := yaml.Marshal(said)
		if err != nil {
			return "", fmt.Errorf("writing it as YAML: %w", err)
		}
		document = append([]byte(cloudConfig+"\n"), body...)
	}
	out := bytes.NewBuffer(bytes.TrimRight(document, "\n"))
	out.WriteByte('\n')
	for _, closed := range []struct{ key, line string }{{"disable_root", "disable_root: true\n"}, {"ssh_pwauth", "ssh_pwauth: false\n"}} {
		if _, ok := said[closed.key]; !ok {
			out.WriteString(closed.line)
		}
	}
	return out.String(), nil
}

// appendable reports whether a document can stand behind another as it is.
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

// Ignition makes an Ignition document fit for a VM's custom script.
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
