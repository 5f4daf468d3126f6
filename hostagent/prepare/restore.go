package prepare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
)

// imageSuffix is the suffix of the former file of the image, beside the file that
// replaces it. It is empty if the image has no such file. Services read only files
// that end with .conf.
const imageSuffix = ".nova-image"

// replace writes a file, and keeps the one of the image. A file that replaces a
// link is not written to the target of the link.
func replace(m *machine.Machine, path, content string) error {
	if !m.Exists(path + imageSuffix) {
		err := hardLink(m, path, path+imageSuffix)
		if errors.Is(err, os.ErrNotExist) {
			err = m.Write(path+imageSuffix, "", readable)
		}
		if err != nil {
			return fmt.Errorf("keeping %s of the image: %w", path, err)
		}
	}
	return m.Edit(path, content, readable)
}

// readable are the permissions of a new file.
const readable = 0o644

// ofImage returns the content of a file of the image, also if it was replaced.
func ofImage(m *machine.Machine, path string) string {
	if m.Exists(path + imageSuffix) {
		return m.Read(path + imageSuffix)
	}
	return m.Read(path)
}

// restore restores a file of the image that was replaced, and then calls reload for
// the service that reads it. After a reset it begins again: the kept file is removed
// last.
func restore(m *machine.Machine, path string, reload func() error) error {
	kept := path + imageSuffix
	if !m.Exists(kept) {
		return nil
	}
	next := filepath.Join(filepath.Dir(path), ".nova-"+filepath.Base(path))
	err := m.Remove(next)
	if err == nil {
		err = hardLink(m, kept, next)
	}
	if err == nil {
		err = os.Rename(m.At(next), m.At(path))
	}
	// Nothing is renamed if both names are the same file already.
	if err = errors.Join(err, m.Remove(next)); err != nil {
		return fmt.Errorf("restoring %s of the image: %w", path, err)
	}
	if err := reload(); err != nil {
		return err
	}
	return m.Remove(kept)
}

// hardLink gives a file, or a link itself, a second name.
func hardLink(m *machine.Machine, path, name string) error {
	if err := os.MkdirAll(filepath.Dir(m.At(name)), 0o755); err != nil { //nolint:gosec // folders of the system are readable
		return err //nolint:wrapcheck // the callers wrap it
	}
	return os.Link(m.At(path), m.At(name)) //nolint:wrapcheck // the callers wrap it
}
