package bootdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// Config returns the configuration of the host agent in a cloud-config or in
// Ignition's document.
func Config(document []byte) (*nodeconfig.Config, error) {
	packed, err := packed(document)
	if err != nil {
		return nil, err
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpacking the configuration: %w", err)
	}
	return nodeconfig.Read(reader)
}

// packed returns the compressed configuration.
func packed(document []byte) ([]byte, error) {
	const name = "/config.json"
	if strings.HasPrefix(string(document), "#cloud-config\n") {
		var config struct {
			WriteFiles []struct {
				Path     string `json:"path"`
				Encoding string `json:"encoding"`
				Content  string `json:"content"`
			} `json:"write_files"`
		}
		if err := yaml.Unmarshal(document, &config); err != nil {
			return nil, fmt.Errorf("reading cloud-config: %w", err)
		}
		for _, f := range config.WriteFiles {
			if strings.HasSuffix(f.Path, name) && f.Encoding == "gz+b64" {
				return decode(f.Content)
			}
		}
		return nil, errors.New("the cloud-config has no configuration of the host agent")
	}
	var config struct {
		Storage struct {
			Files []struct {
				Path     string `json:"path"`
				Contents struct {
					Source string `json:"source"`
				} `json:"contents"`
			} `json:"files"`
		} `json:"storage"`
	}
	if err := json.Unmarshal(document, &config); err != nil {
		return nil, fmt.Errorf("reading Ignition's document: %w", err)
	}
	for _, f := range config.Storage.Files {
		if strings.HasSuffix(f.Path, name) {
			return decode(strings.TrimPrefix(f.Contents.Source, "data:;base64,"))
		}
	}
	return nil, errors.New("the document of Ignition has no configuration of the host agent")
}

func decode(text string) ([]byte, error) {
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("decoding the configuration: %w", err)
	}
	return content, nil
}

// Files returns the content of the machine's files, by path. The last of several
// files at the same path counts.
func Files(config *nodeconfig.Config) (map[string]string, error) {
	files := map[string]string{}
	for i := range config.Machine.Files {
		f := &config.Machine.Files[i]
		content := f.Text
		if len(f.Data) > 0 {
			content = string(f.Data)
		}
		if f.Gzip {
			reader, err := gzip.NewReader(bytes.NewReader(f.Data))
			if err != nil {
				return nil, fmt.Errorf("unpacking %s: %w", f.Path, err)
			}
			unpacked, err := io.ReadAll(reader)
			if err != nil {
				return nil, fmt.Errorf("unpacking %s: %w", f.Path, err)
			}
			content = string(unpacked)
		}
		files[f.Path] = content
	}
	return files, nil
}
