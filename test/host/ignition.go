package host

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// ignitionLayer is the directory of files that an image with Ignition has on
// top of the others.
const ignitionLayer = "layer"

//go:embed all:files/ignition
var ignitionFiles embed.FS

// PrepareIgnition builds Ignition and the layer of images that it sets up, or
// finds them in the cache. The result belongs into Assets.
func PrepareIgnition(ctx context.Context, log io.Writer) (string, error) {
	c, err := newCache(log)
	if err != nil {
		return "", err
	}
	programs, err := tools.Paths(ctx, c.log, "ignition")
	if err != nil {
		return "", err
	}
	files := map[string][]byte{}
	key := programsKey(programs, []string{"ignition"})
	const root = "files/ignition"
	err = fs.WalkDir(ignitionFiles, root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := ignitionFiles.ReadFile(path)
		files[strings.TrimPrefix(path, root+"/")] = data
		key = append(key, path, string(data))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading files of images with Ignition: %w", err)
	}
	return c.get(ctx, "ignition", key, func(_ context.Context, dir string) error {
		for path, data := range files {
			if err := writeFile(filepath.Join(dir, ignitionLayer, path), data, 0o644); err != nil {
				return err
			}
		}
		// Only for a terminal, which a host does not have.
		mask := filepath.Join(dir, ignitionLayer, "etc/systemd/system/systemd-firstboot.service")
		if err := os.MkdirAll(filepath.Dir(mask), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("/dev/null", mask); err != nil {
			return err
		}
		return copyFile(programs["ignition"], filepath.Join(dir, "ignition"), 0o755)
	})
}
