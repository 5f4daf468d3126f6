package bootstrap

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/internal/boundedtemplate"
)

// defaultPermissions are the permissions of a file that sets none.
const defaultPermissions = "0640"

// maxUnpacked limits the unpacked size of all compressed files of a document.
const maxUnpacked = 64 << 20

// budget limits the rendering of all files of a document.
type budget struct {
	templates *boundedtemplate.Budget
	// unpacked is the remaining unpacked size of compressed files, in bytes.
	unpacked int64
}

// userFiles are the files of the spec. They come last, so that they replace a
// file of ours at the same path.
func userFiles(in *Input) ([]writeFile, error) {
	files := make([]writeFile, 0, len(in.Spec.Files))
	left := &budget{templates: boundedtemplate.NewBudget(), unpacked: maxUnpacked}
	for i := range in.Spec.Files {
		f := &in.Spec.Files[i]
		// YAML allows no control characters, and a line break in a path is a
		// mistake.
		if !needsNoEncoding([]byte(f.Path)) || strings.ContainsAny(f.Path, "\n\t") {
			return nil, renderErrorf(fmt.Sprintf("spec.files[%q]", f.Path), "path has a non-printable character")
		}
		if err := rejectHiddenFile(in, f); err != nil {
			return nil, err
		}
		content := []byte(f.Content)
		if f.ContentFormat == bootstrapv1.ContentFormatTemplate {
			var err error
			if content, err = execute(in, f, left); err != nil {
				return nil, err
			}
		}
		file, err := encodedFile(f, content, left)
		if err != nil {
			return nil, err
		}
		file.Append = f.Append != nil && *f.Append
		files = append(files, file)
	}
	return files, nil
}

// rejectHiddenFile rejects a file below a mount point: the mount would hide it.
func rejectHiddenFile(in *Input, f *bootstrapv1.File) error {
	mounted := map[string]string{}
	for _, d := range in.Spec.Disks {
		mounted[d.MountPath] = d.Device
	}
	for _, m := range in.Spec.Mounts {
		mounted[m.MountPath] = m.Source
	}
	for _, at := range slices.Sorted(maps.Keys(mounted)) {
		if strings.HasPrefix(path.Clean(f.Path)+"/", path.Clean(at)+"/") {
			return renderErrorf(fmt.Sprintf("spec.files[%s]", f.Path),
				"is written before %s is mounted at %s, which would hide it; write it with one of preKubeadmCommands", mounted[at], at)
		}
	}
	return nil
}

// chownCommands set the owners of files. cloud-init writes the files as root,
// because users are created later.
func chownCommands(spec *bootstrapv1.NodeConfigSpec) [][]string {
	var calls [][]string
	for i := range spec.Files {
		f := &spec.Files[i]
		if f.Owner != "" && f.Owner != "root" && f.Owner != "root:root" {
			calls = append(calls, []string{"set_owner", f.Path, f.Owner})
		}
	}
	return calls
}

// encodedFile decodes base64, and leaves compressed content as it is, to keep
// the document small.
func encodedFile(f *bootstrapv1.File, content []byte, left *budget) (writeFile, error) {
	field := fmt.Sprintf("spec.files[%s]", f.Path)
	if f.Encoding == bootstrapv1.ContentEncodingBase64 || f.Encoding == bootstrapv1.ContentEncodingGzipBase64 {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(content)), ""))
		if err != nil {
			return writeFile{}, renderErrorf(field, "is not base64")
		}
		content = decoded
	}
	if f.Encoding != bootstrapv1.ContentEncodingGzip && f.Encoding != bootstrapv1.ContentEncodingGzipBase64 {
		return newFile(f.Path, cmp.Or(f.Permissions, defaultPermissions), content), nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return writeFile{}, renderErrorf(field, "is not compressed with gzip")
	}
	unpacked, err := io.Copy(io.Discard, io.LimitReader(reader, left.unpacked+1))
	if err != nil {
		return writeFile{}, renderErrorf(field, "is not compressed with gzip")
	}
	if left.unpacked -= unpacked; left.unpacked < 0 {
		return writeFile{}, renderErrorf(field, "the unpacked size of all compressed files is more than %d MiB; download large files with a command", maxUnpacked>>20)
	}
	file := newFile(f.Path, cmp.Or(f.Permissions, defaultPermissions), nil)
	file.Encoding, file.Content = "gz+b64", base64.StdEncoding.EncodeToString(content)
	return file, nil
}

// execute renders a template. Unknown names are errors: a node with an
// incomplete file is worse than a failed bootstrap.
func execute(in *Input, f *bootstrapv1.File, left *budget) ([]byte, error) {
	field := fmt.Sprintf("spec.files[%s]", f.Path)
	t, err := boundedtemplate.Parse("template", f.Content)
	if err != nil {
		return nil, renderErrorf(field, "malformed template: %s", templateProblem(f, err))
	}
	roles := Roles(&in.Spec, in.Mode.controlPlane())
	names := make([]string, 0, len(roles))
	for _, role := range roles {
		names = append(names, string(role))
	}
	out, err := t.Execute(map[string]any{
		"Cluster":  map[string]any{"Name": in.ClusterName, "Namespace": in.ClusterNamespace},
		"Machine":  map[string]any{"Name": in.Machine},
		"Version":  in.Version,
		"Endpoint": map[string]any{"Host": in.Endpoint.Host, "Port": in.Endpoint.Port},
		"Roles":    names,
	}, left.templates)
	if limit, is := errors.AsType[*boundedtemplate.LimitError](err); is {
		return nil, renderErrorf(field, "malformed template: %s", limit)
	}
	if err != nil {
		return nil, renderErrorf(field, "malformed template: %s", templateProblem(f, err))
	}
	return []byte(out), nil
}

// templateProblem returns "line: problem" of a template error. The problem
// quotes the template, so only the line is reported for content of a Secret.
func templateProblem(f *bootstrapv1.File, err error) string {
	text, placed := strings.CutPrefix(err.Error(), "template: template:")
	if !placed {
		return strings.TrimPrefix(text, "template: ")
	}
	if name := f.ContentFrom.Secret.Name; name != "" {
		line, _, _ := strings.Cut(text, ":")
		return fmt.Sprintf("line %s of key %s in Secret %s", line, f.ContentFrom.Secret.Key, name)
	}
	return "line " + text
}
