package bootstrap

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_3/types"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// startFile is the script of the unit.
const startFile = "/var/lib/nova/start.sh"

// unit runs the host agent once.
//
//go:embed nova-bootstrap.service
var unit string

// ignitionDocument writes the configuration, and a unit that runs the host
// agent. It also sets the host name, which cloud-init gets from the hypervisor,
// and writes the user's files before the system starts: services that begin
// before the agent read them.
func ignitionDocument(in *Input, config *nodeconfig.Config) ([]byte, error) {
	document := ignition.Config{Ignition: ignition.Ignition{Version: ignition.MaxVersion.String()}}
	for _, argument := range in.Spec.Kernel.Arguments {
		document.KernelArguments.ShouldExist = append(document.KernelArguments.ShouldExist, ignition.KernelArgument(argument))
	}
	document.Systemd.Units = []ignition.Unit{{Name: "nova-bootstrap.service", Enabled: new(true), Contents: &unit}}
	early, rest := earlyFiles(in, config)
	packed, err := compress(rest)
	if err != nil {
		return nil, err
	}
	const readable, private = 0o644, 0o600
	configuration := ignitionFile(nodeconfig.KeptConfigFile, private, packed)
	configuration.Contents.Compression = new("gzip")
	document.Storage.Files = []ignition.File{ignitionFile(startFile, readable, []byte(strings.TrimSpace(startScript(in))+"\n")), configuration}
	const hostname = "/etc/hostname"
	if !slices.ContainsFunc(early, func(f ignition.File) bool { return f.Path == hostname }) {
		document.Storage.Files = append(document.Storage.Files, ignitionFile(hostname, readable, []byte(in.Machine+"\n")))
	}
	document.Storage.Files = append(document.Storage.Files, early...)
	out, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("writing Ignition's configuration: %w", err)
	}
	return out, nil
}

// earlyFiles returns the files that Ignition writes, and the configuration of the
// agent without them. The agent writes files that it appends to, several files at
// one path, files below mounts, which it mounts first, and files in memory. It sets owners, so it
// writes files with an owner again.
func earlyFiles(in *Input, config *nodeconfig.Config) ([]ignition.File, *nodeconfig.Config) {
	rest := *config
	ours := len(config.Machine.Files) - len(in.Spec.Files)
	rest.Machine.Files = slices.Clone(config.Machine.Files[:ours])
	times := map[string]int{}
	for i := range config.Machine.Files {
		times[config.Machine.Files[i].Path]++
	}
	var early []ignition.File
	for _, f := range config.Machine.Files[ours:] {
		mode, err := strconv.ParseInt(f.Mode, 8, 32)
		// Of files at the same path the last one counts, and Ignition rejects them.
		if err != nil || f.Append || isBelowMount(&in.Spec, f.Path) || times[f.Path] > 1 {
			rest.Machine.Files = append(rest.Machine.Files, f)
			continue
		}
		content := f.Data
		if f.Text != "" {
			content = []byte(f.Text)
		}
		file := ignitionFile(f.Path, int(mode), content)
		if f.Gzip {
			file.Contents.Compression = new("gzip")
		}
		early = append(early, file)
		if f.Owner != "" {
			rest.Machine.Files = append(rest.Machine.Files, f)
		}
	}
	return early, &rest
}

// isBelowMount reports whether a mount of the machine, or /run, would hide a file
// that is written before.
func isBelowMount(spec *bootstrapv1.NodeConfigSpec, file string) bool {
	mounted := []string{"/run"}
	for i := range spec.Disks {
		mounted = append(mounted, spec.Disks[i].MountPath)
	}
	for i := range spec.Mounts {
		mounted = append(mounted, spec.Mounts[i].MountPath)
	}
	return slices.ContainsFunc(mounted, func(at string) bool { return strings.HasPrefix(path.Clean(file)+"/", path.Clean(at)+"/") })
}

// ignitionFile returns a file of root, which is Ignition's default.
func ignitionFile(path string, mode int, content []byte) ignition.File {
	file := ignition.File{Node: ignition.Node{Path: path, Overwrite: new(true)}}
	file.Mode = &mode
	file.Contents = ignition.Resource{Source: new("data:;base64," + base64.StdEncoding.EncodeToString(content))}
	return file
}
