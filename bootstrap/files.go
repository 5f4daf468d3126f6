package bootstrap

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
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

// addUserFiles adds the files of the spec.
func addUserFiles(in *Input, config *nodeconfig.Config) error {
	left := &budget{templates: boundedtemplate.NewBudget(), unpacked: maxUnpacked}
	for i := range in.Spec.Files {
		f := &in.Spec.Files[i]
		// A line break in a path is a mistake.
		if !isPrintable(f.Path) {
			return renderErrorf(fmt.Sprintf("spec.files[%q]", f.Path), "path has a non-printable character")
		}
		content := []byte(f.Content)
		if f.ContentFormat == bootstrapv1.ContentFormatTemplate {
			var err error
			if content, err = execute(in, f, left); err != nil {
				return err
			}
		}
		file, err := decodedFile(f, content, left)
		if err != nil {
			return err
		}
		file.Append = ptr.Deref(f.Append, false)
		if f.Owner != "root" && f.Owner != "root:root" {
			file.Owner = f.Owner
		}
		config.Machine.Files = append(config.Machine.Files, file)
	}
	return nil
}

// decodedFile decodes base64, and leaves compressed content as it is, to keep
// the document small.
func decodedFile(f *bootstrapv1.File, content []byte, left *budget) (nodeconfig.File, error) {
	field := fmt.Sprintf("spec.files[%s]", f.Path)
	mode := cmp.Or(f.Permissions, defaultPermissions)
	if f.Encoding == bootstrapv1.ContentEncodingBase64 || f.Encoding == bootstrapv1.ContentEncodingGzipBase64 {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(content)), ""))
		if err != nil {
			return nodeconfig.File{}, renderErrorf(field, "is not base64")
		}
		content = decoded
	}
	if f.Encoding != bootstrapv1.ContentEncodingGzip && f.Encoding != bootstrapv1.ContentEncodingGzipBase64 {
		return newFile(f.Path, mode, content), nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nodeconfig.File{}, renderErrorf(field, "is not compressed with gzip")
	}
	unpacked, err := io.Copy(io.Discard, io.LimitReader(reader, left.unpacked+1))
	if err != nil {
		return nodeconfig.File{}, renderErrorf(field, "is not compressed with gzip")
	}
	if left.unpacked -= unpacked; left.unpacked < 0 {
		return nodeconfig.File{}, renderErrorf(field, "the unpacked size of all compressed files is more than %d MiB; download large files with a command", maxUnpacked>>20)
	}
	return nodeconfig.File{Path: f.Path, Mode: mode, Data: content, Gzip: true}, nil
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
