package bootstrap

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_3/types"
)

const (
	// keptConfigFile replaces configFile: Ignition runs before the system mounts
	// /run. The agent moves it there, so that credentials are not stored on the
	// disk.
	keptConfigFile = "/var/lib/nova/first-boot/config.json"
	// startFile is the script of the unit.
	startFile = "/var/lib/nova/start.sh"
)

// unit runs the host agent once.
//
//go:embed nova-bootstrap.service
var unit string

// ignitionDocument writes the configuration, and a unit that runs the host
// agent. It also sets the host name, which cloud-init gets from the hypervisor.
func ignitionDocument(in *Input, config []byte) ([]byte, error) {
	packed, err := compress(config)
	if err != nil {
		return nil, err
	}
	document := ignition.Config{Ignition: ignition.Ignition{Version: ignition.MaxVersion.String()}}
	for _, argument := range in.Spec.Kernel.Arguments {
		document.KernelArguments.ShouldExist = append(document.KernelArguments.ShouldExist, ignition.KernelArgument(argument))
	}
	document.Systemd.Units = []ignition.Unit{{Name: "nova-bootstrap.service", Enabled: new(true), Contents: &unit}}
	const readable, private = 0o644, 0o600
	configuration := ignitionFile(keptConfigFile, private, packed)
	configuration.Contents.Compression = new("gzip")
	document.Storage.Files = []ignition.File{
		ignitionFile("/etc/hostname", readable, []byte(in.Machine+"\n")),
		ignitionFile(startFile, readable, []byte(strings.TrimSpace(startScript(in))+"\n")),
		configuration,
	}
	out, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("writing Ignition's configuration: %w", err)
	}
	return out, nil
}

// ignitionFile returns a file of root, which is Ignition's default.
func ignitionFile(path string, mode int, content []byte) ignition.File {
	file := ignition.File{Node: ignition.Node{Path: path, Overwrite: new(true)}}
	file.Mode = &mode
	file.Contents = ignition.Resource{Source: new("data:;base64," + base64.StdEncoding.EncodeToString(content))}
	return file
}
