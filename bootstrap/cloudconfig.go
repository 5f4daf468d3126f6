package bootstrap

import (
	"encoding/base64"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// header is the first line that cloud-init requires.
const header = "#cloud-config\n"

// cloudConfig is the cloud-config document. It has no other keys: on oVirt the
// engine prepends its own document, and later keys replace the engine's.
type cloudConfig struct {
	BootCmd    []string    `json:"bootcmd,omitempty"`
	WriteFiles []writeFile `json:"write_files"`
	RunCmd     [][]string  `json:"runcmd"`
}

// writeFile is a file that cloud-init writes.
type writeFile struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Encoding    string `json:"encoding"`
	Content     string `json:"content"`
}

// cloudConfigDocument writes the configuration, and runs the host agent.
func cloudConfigDocument(in *Input, config *nodeconfig.Config) ([]byte, error) {
	packed, err := compress(config)
	if err != nil {
		return nil, err
	}
	document := &cloudConfig{
		BootCmd:    in.Spec.BootCommands,
		WriteFiles: []writeFile{{Path: nodeconfig.ConfigFile, Permissions: "0600", Encoding: "gz+b64", Content: base64.StdEncoding.EncodeToString(packed)}},
		RunCmd:     [][]string{{"sh", "-c", strings.TrimSpace(startScript(in))}},
	}
	body, err := yaml.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("writing cloud-config: %w", err)
	}
	return append([]byte(header), body...), nil
}
