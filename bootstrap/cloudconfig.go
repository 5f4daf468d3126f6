package bootstrap

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// header is the first line that cloud-init requires.
const header = "#cloud-config\n"

// runDir holds files that only the first boot needs. It is in memory, so that
// credentials are not stored on the disk.
const runDir = "/run/nova"

//go:embed node.sh
var nodeScript []byte

// cloudConfig is the cloud-config document. It has no other keys: on oVirt the
// engine prepends its own document, and later keys replace the engine's.
type cloudConfig struct {
	BootCmd    []string    `json:"bootcmd,omitempty"`
	WriteFiles []writeFile `json:"write_files"`
	RunCmd     [][]string  `json:"runcmd"`
}

type writeFile struct {
	Path        string `json:"path"`
	Owner       string `json:"owner,omitempty"`
	Permissions string `json:"permissions"`
	Append      bool   `json:"append,omitempty"`
	Encoding    string `json:"encoding,omitempty"`
	Content     string `json:"content"`
}

// newFile returns a file of root. Content that is not plain text is encoded.
func newFile(path, permissions string, content []byte) writeFile {
	f := writeFile{Path: path, Owner: "root:root", Permissions: permissions, Content: string(content)}
	if !needsNoEncoding(content) {
		f.Encoding, f.Content = "b64", base64.StdEncoding.EncodeToString(content)
	}
	return f
}

// needsNoEncoding reports whether YAML and a shell leave the content unchanged.
func needsNoEncoding(content []byte) bool {
	if !utf8.Valid(content) {
		return false
	}
	for _, r := range string(content) {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ') {
			return false
		}
	}
	return true
}

// marshal returns the document as YAML.
func (c *cloudConfig) marshal() ([]byte, error) {
	body, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("writing cloud-config: %w", err)
	}
	return append([]byte(header), body...), nil
}
