package host

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed files/haproxy.sh
var haproxyScript string

// HAProxy makes the root file system of an image with HAProxy and a shell, or
// finds it in the cache. assets are those of Prepare.
func HAProxy(ctx context.Context, log io.Writer, assets Assets) (string, error) {
	c, err := newCache(log)
	if err != nil {
		return "", err
	}
	key := []string{filepath.Base(assets.Debian), haproxyScript}
	return c.get(ctx, "haproxy", key, func(ctx context.Context, dir string) error {
		settings, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%f \"%v\";%n", "Acquire::http", "Acquire::https").Output()
		if err != nil {
			return fmt.Errorf("reading the settings of apt: %w", err)
		}
		cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "/bin/sh", "-euc", haproxyScript, "haproxy.sh")
		cmd.Env = append(os.Environ(), "DEBIAN="+assets.Debian, "ROOT="+dir, "APT_SETTINGS="+string(settings), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
		return runQuietly(cmd)
	})
}
