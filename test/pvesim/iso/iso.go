package iso

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kdomanski/iso9660"
)

// Image is a volume.
type Image struct {
	// Label is the volume ID.
	Label string
	// Files are the contents of the files of the root directory by their name.
	Files map[string][]byte
}

// minSize is the size of an image with an empty root directory: the system area
// and two volume descriptors.
const minSize = 18 * 2048

// Read reads an image. Directories are left out.
func Read(data []byte) (*Image, error) {
	if len(data) < minSize {
		return nil, errors.New("the image has no volume descriptor")
	}
	image, err := iso9660.OpenImage(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading the volume descriptors: %w", err)
	}
	label, err := image.Label()
	if err != nil {
		return nil, fmt.Errorf("reading the volume ID: %w", err)
	}
	root, err := image.RootDir()
	if err != nil {
		return nil, fmt.Errorf("reading the root directory: %w", err)
	}
	children, err := root.GetChildren()
	if err != nil {
		return nil, fmt.Errorf("reading the root directory: %w", err)
	}
	out := &Image{Label: strings.TrimRight(label, " \x00"), Files: map[string][]byte{}}
	for _, child := range children {
		if child.IsDir() {
			continue
		}
		if child.Size() > int64(len(data)) {
			return nil, fmt.Errorf("file %s is larger than the image", child.Name())
		}
		content, err := io.ReadAll(child.Reader())
		if err != nil {
			return nil, fmt.Errorf("reading file %s: %w", child.Name(), err)
		}
		if int64(len(content)) != child.Size() {
			return nil, fmt.Errorf("file %s is not complete", child.Name())
		}
		out.Files[name(child)] = content
	}
	return out, nil
}

// name is the name of a file as Linux shows it: names without Rock Ridge, which
// have capitals only, are shown in lower case.
func name(f *iso9660.File) string {
	shown := f.Name()
	if shown == strings.ToUpper(shown) {
		return strings.ToLower(shown)
	}
	return shown
}
