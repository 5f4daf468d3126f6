package prepare

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// maxUnpacked limits the unpacked size of a compressed file. The manager limits
// the size of all files.
const maxUnpacked = 64 << 20

// files writes the files, which root owns for now.
func files(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	if len(c.Files) == 0 {
		return nil
	}
	relabel, units := []string{"restorecon"}, false
	for i := range c.Files {
		f := &c.Files[i]
		mode, err := mode(f)
		if err != nil {
			return err
		}
		content, err := content(f)
		if err != nil {
			return err
		}
		if f.Append {
			// A repeated step must not add the text again.
			content = withText(m.Read(f.Path), content)
		}
		if err := write(m, f.Path, content, mode); err != nil {
			return err
		}
		relabel = append(relabel, m.At(f.Path))
		units = units || strings.HasPrefix(f.Path, unitsDir)
	}
	// The policy of SELinux has labels for some paths.
	if m.Has(relabel[0]) {
		if err := m.Run(ctx, relabel...); err != nil {
			m.Logf("Files keep the labels of their folders: %v", err)
		}
	}
	if !units {
		return nil
	}
	return m.Run(ctx, "systemctl", "daemon-reload")
}

// write writes a file of the user: into the file that a link leads to, and in
// place in the file systems of the kernel.
func write(m *machine.Machine, path, content string, mode os.FileMode) error {
	if strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") {
		if err := os.WriteFile(m.At(path), []byte(content), mode); err != nil {
			return fmt.Errorf("writing file: %w", err)
		}
		return nil
	}
	if target, err := filepath.EvalSymlinks(m.At(path)); err == nil {
		if inside, err := filepath.Rel(m.At("/"), target); err == nil && !strings.HasPrefix(inside, "..") {
			path = "/" + inside
		}
	}
	return m.Write(path, content, mode)
}

func withText(existing, added string) string {
	if len(existing) >= len(added) && existing[len(existing)-len(added):] == added {
		return existing
	}
	return existing + added
}

func mode(f *nodeconfig.File) (os.FileMode, error) {
	bits, err := strconv.ParseUint(f.Mode, 8, 12)
	if err != nil {
		return 0, fmt.Errorf("file %s has permissions %q, which is no octal number", f.Path, f.Mode)
	}
	mode := os.FileMode(bits & 0o777)
	for bit, special := range map[uint64]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if bits&bit != 0 {
			mode |= special
		}
	}
	return mode, nil
}

func content(f *nodeconfig.File) (string, error) {
	switch {
	case f.Gzip:
		reader, err := gzip.NewReader(bytes.NewReader(f.Data))
		if err != nil {
			return "", fmt.Errorf("unpacking %s: %w", f.Path, err)
		}
		unpacked, err := io.ReadAll(io.LimitReader(reader, maxUnpacked+1))
		if err != nil {
			return "", fmt.Errorf("unpacking %s: %w", f.Path, err)
		}
		if len(unpacked) > maxUnpacked {
			return "", fmt.Errorf("file %s is larger than %d MiB", f.Path, maxUnpacked>>20)
		}
		return string(unpacked), nil
	case len(f.Data) > 0:
		return string(f.Data), nil
	default:
		return f.Text, nil
	}
}

// owners sets the owners of files, once their users exist.
func owners(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	for i := range c.Files {
		f := &c.Files[i]
		if f.Owner == "" {
			continue
		}
		mode, err := mode(f)
		if err != nil {
			return err
		}
		if err := m.Run(ctx, "chown", "--", f.Owner, m.At(f.Path)); err != nil {
			return fmt.Errorf("setting owner of %s to %s: %w", f.Path, f.Owner, err)
		}
		// chown clears setuid and setgid.
		if err := os.Chmod(m.At(f.Path), mode); err != nil {
			return fmt.Errorf("setting permissions: %w", err)
		}
	}
	return nil
}
