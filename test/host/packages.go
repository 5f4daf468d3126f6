package host

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed files/guest.sh
var guestScript string

// packagesLayer is the directory of the files in a layer with packages.
const packagesLayer = "files"

// PreparePackages installs Debian packages on all hosts of the assets, in addition to
// those of node images.
func PreparePackages(ctx context.Context, log io.Writer, assets *Assets, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	c, err := openCache(ctx, log)
	if err != nil {
		return err
	}
	layer, err := c.get(ctx, "packages", append([]string{filepath.Base(assets.Debian), guestScript}, packages...), func(ctx context.Context, dir string) error {
		return installPackages(ctx, assets.Debian, dir, packages)
	})
	if err != nil {
		return fmt.Errorf("preparing hosts: %w", err)
	}
	assets.Packages = filepath.Join(layer, packagesLayer)
	return nil
}

// installPackages makes a layer over a root file system, with packages of its own
// archive. Its files are in packagesLayer.
func installPackages(ctx context.Context, root, layer string, packages []string) error {
	settings, err := aptSettings(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "/bin/sh", "-euc", guestScript, "guest.sh")
	cmd.Env = append(os.Environ(), "ROOT="+root, "LAYER="+layer, "PACKAGES="+strings.Join(packages, " "),
		"APT_SETTINGS="+settings, "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	return runQuietly(cmd)
}
