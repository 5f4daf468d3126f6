package pvesim

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// uploadFields are the fields before the file, in the only order that a node
// reads them in.
var uploadFields = []string{"content", "checksum-algorithm", "checksum"}

var (
	fieldPattern = regexp.MustCompile(`^Content-Disposition: ([^;]*); name="([^"]*)"\r?\n`)
	filePattern  = regexp.MustCompile(`^Content-Disposition: ([^;]*); name="([^"]*)"; filename="([^"]+)"\r?\n`)
)

// readUpload reads a form with a file as a node does: the header
// Content-Disposition is the first of each part, fields are before the file, and
// the file is the last part, with the name filename.
func readUpload(r *http.Request, boundary string, params map[string]any) ([]byte, error) {
	if params["tmpfilename"] != nil {
		return nil, &bareError{http.StatusInternalServerError, "'tmpfilename' query parameter is not allowed for file uploads"}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxUpload))
	if err != nil {
		return nil, err
	}
	failed := &bareError{http.StatusInternalServerError, "upload failed"}
	next := 0
	parts := strings.Split(string(body), "--"+boundary)
	if len(parts) < 3 || !strings.HasPrefix(parts[len(parts)-1], "--") {
		return nil, failed
	}
	for _, part := range parts[1 : len(parts)-1] {
		part = strings.TrimPrefix(strings.TrimPrefix(part, "\r"), "\n")
		if match := filePattern.FindStringSubmatch(part); match != nil {
			if match[2] != "filename" {
				return nil, &bareError{http.StatusInternalServerError, "wrong field name '" + match[2] + "' for file upload, expected 'filename'"}
			}
			params["filename"] = strings.TrimSpace(match[3])
			return content(part)
		}
		match := fieldPattern.FindStringSubmatch(part)
		if len(match) < 2 || match[1] != "form-data" {
			return nil, failed
		}
		at := slices.Index(uploadFields[next:], match[2])
		if at < 0 {
			return nil, failed
		}
		next += at + 1
		text, err := content(part)
		if err != nil {
			return nil, err
		}
		params[match[2]] = strings.TrimSpace(string(text))
	}
	return nil, failed
}

// content returns the content of a part, without the headers and the line break
// before the boundary.
func content(part string) ([]byte, error) {
	data := []byte(part)
	for _, end := range []string{"\r\n\r\n", "\n\n"} {
		if at := bytes.Index(data, []byte(end)); at >= 0 {
			data = data[at+len(end):]
			data = bytes.TrimSuffix(data, []byte("\n"))
			return bytes.TrimSuffix(data, []byte("\r")), nil
		}
	}
	return nil, &bareError{http.StatusInternalServerError, "upload failed"}
}
