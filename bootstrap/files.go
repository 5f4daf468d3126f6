package bootstrap

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
)

// defaultPermissions are those of a file that names none.
const defaultPermissions = "0640"

// userFiles are the files of the spec. They come last, so that they win over
// a file of ours at the same path.
func userFiles(in *Input) ([]writeFile, error) {
	files := make([]writeFile, 0, len(in.Spec.Files))
	for i := range in.Spec.Files {
		f := &in.Spec.Files[i]
		content := []byte(f.Content)
		if f.ContentFormat == bootstrapv1.ContentFormatTemplate {
			var err error
			if content, err = execute(in, f); err != nil {
				return nil, err
			}
		}
		file := newFile(f.Path, permissions(f.Permissions), content)
		if f.Owner != "" {
			file.Owner = f.Owner
		}
		file.Append = f.Append != nil && *f.Append
		files = append(files, file)
	}
	return files, nil
}

func permissions(octal string) string {
	if octal == "" {
		return defaultPermissions
	}
	return octal
}

// execute fills in a template. Names it does not know are errors, because a
// file with a gap in it is worse than no node.
func execute(in *Input, f *bootstrapv1.File) ([]byte, error) {
	field := fmt.Sprintf("spec.files[%s]", f.Path)
	t, err := template.New("template").Option("missingkey=error").Parse(f.Content)
	if err != nil {
		return nil, renderErrorf(field, "malformed template: %s", templateProblem(f, err))
	}
	roles := Roles(&in.Spec, in.Mode.controlPlane())
	names := make([]string, 0, len(roles))
	for _, role := range roles {
		names = append(names, string(role))
	}
	out := &bytes.Buffer{}
	err = t.Execute(out, map[string]any{
		"Cluster":  map[string]any{"Name": in.ClusterName, "Namespace": in.ClusterNamespace},
		"Machine":  map[string]any{"Name": in.Machine},
		"Version":  in.Version,
		"Endpoint": map[string]any{"Host": in.Endpoint.Host, "Port": in.Endpoint.Port},
		"Roles":    names,
	})
	if err != nil {
		return nil, renderErrorf(field, "malformed template: %s", templateProblem(f, err))
	}
	return out.Bytes(), nil
}

// templateProblem leaves "line: problem" of a template's error. The problem
// quotes the template, so of a Secret's content only the line is told.
func templateProblem(f *bootstrapv1.File, err error) string {
	text := strings.TrimPrefix(err.Error(), "template: template:")
	if name := f.ContentFrom.Secret.Name; name != "" {
		line, _, _ := strings.Cut(text, ":")
		return fmt.Sprintf("line %s of key %s in Secret %s", line, f.ContentFrom.Secret.Key, name)
	}
	return "line " + text
}
