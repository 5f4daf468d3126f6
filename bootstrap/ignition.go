package bootstrap

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_3/types"
)

// firstBootDir replaces runDir: Ignition runs before the system mounts /run.
// The unit moves the files there, so that credentials are not stored on the
// disk.
const firstBootDir = "/var/lib/nova/first-boot"

// unit runs the script once.
//
//go:embed nova-bootstrap.service
var unit string

// ignitionDocument converts the files of a cloud-config to Ignition. It also
// sets the host name, which cloud-init gets from the hypervisor.
func ignitionDocument(in *Input, files []writeFile) ([]byte, error) {
	config := ignition.Config{Ignition: ignition.Ignition{Version: ignition.MaxVersion.String()}}
	for _, argument := range in.Spec.Kernel.Arguments {
		config.KernelArguments.ShouldExist = append(config.KernelArguments.ShouldExist, ignition.KernelArgument(argument))
	}
	yes := true
	config.Systemd.Units = []ignition.Unit{{Name: "nova-bootstrap.service", Enabled: &yes, Contents: &unit}}
	all := append([]writeFile{newFile("/etc/hostname", "0644", []byte(in.Machine+"\n"))}, files...)
	// Ignition rejects duplicate paths. As with cloud-init, the later file
	// replaces the earlier one, and appended content is added to it.
	at := map[string]int{}
	for i := range all {
		f, err := ignitionFile(&all[i])
		if err != nil {
			return nil, err
		}
		known, double := at[f.Path]
		switch {
		case !double:
			at[f.Path] = len(config.Storage.Files)
			config.Storage.Files = append(config.Storage.Files, *f)
		case len(f.Append) > 0:
			config.Storage.Files[known].Append = append(config.Storage.Files[known].Append, f.Append...)
		default:
			config.Storage.Files[known] = *f
		}
	}
	out, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing Ignition's configuration: %w", err)
	}
	return out, nil
}

// ignitionFile converts one file. root owns all files, which is Ignition's
// default.
func ignitionFile(f *writeFile) (*ignition.File, error) {
	field := fmt.Sprintf("spec.files[%s]", f.Path)
	where := f.Path
	if below, found := strings.CutPrefix(where, runDir+"/"); found {
		where = path.Join(firstBootDir, below)
	} else if strings.HasPrefix(path.Clean(where), "/run/") {
		return nil, renderErrorf(field, "Ignition cannot write to /run, which is an empty file system on each boot; write the file with a command")
	}
	mode, err := strconv.ParseInt(f.Permissions, 8, 32)
	if err != nil {
		return nil, renderErrorf(field, "permissions %q are not an octal number", f.Permissions)
	}
	permissions, overwrite := int(mode), true
	out := &ignition.File{Node: ignition.Node{Path: where}}
	out.Mode = &permissions
	content := f.Content
	if f.Encoding == "" {
		content = base64.StdEncoding.EncodeToString([]byte(content))
	}
	resource := ignition.Resource{Source: new("data:;base64," + content)}
	if f.Encoding == "gz+b64" {
		resource.Compression = new("gzip")
	}
	if f.Append {
		out.Append = []ignition.Resource{resource}
		return out, nil
	}
	out.Overwrite = &overwrite
	out.Contents = resource
	return out, nil
}
