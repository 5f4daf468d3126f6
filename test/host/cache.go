package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cache stores files that are slow to build, one directory per item, with a
// hash of their inputs as the key.
type cache struct {
	dir string
	log io.Writer
}

// newCache opens the cache that all tools of this project share.
func newCache(log io.Writer) (cache, error) {
	root := os.Getenv("NOVA_CACHE")
	if root == "" {
		base := os.Getenv("XDG_CACHE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return cache{}, fmt.Errorf("finding the cache directory: %w", err)
			}
			base = filepath.Join(home, ".cache")
		}
		root = filepath.Join(base, "cluster-api-provider-nova")
	}
	dir, err := filepath.Abs(filepath.Join(root, "host"))
	if err != nil {
		return cache{}, fmt.Errorf("finding the cache directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cache{}, fmt.Errorf("making the cache directory: %w", err)
	}
	return cache{dir: dir, log: &lockedWriter{w: log}}, nil
}

// get returns the directory of the named thing, calling build to fill it when
// the cache has none for this key. One process builds, others wait for it; a
// build that did not come to its end leaves nothing that is taken for whole.
func (c cache) get(ctx context.Context, name string, key []string, build func(ctx context.Context, dir string) error) (string, error) {
	sum := sha256.New()
	for _, part := range key {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	dir := filepath.Join(c.dir, name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if exists(dir) {
		return dir, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(c.dir, "."+name+".lock"))
	if err != nil {
		return "", fmt.Errorf("waiting to build %s: %w", name, err)
	}
	defer unlock()
	if exists(dir) {
		return dir, nil
	}
	fmt.Fprintf(c.log, "host: building %s\n", name)
	started := time.Now()
	// With the lock held, these directories remain from killed builders. A child
	// process of a builder may still write there, so another name is used.
	left, err := filepath.Glob(dir + ".new-*")
	if err != nil {
		return "", fmt.Errorf("looking for a half-built %s: %w", name, err)
	}
	for _, path := range left {
		_ = os.RemoveAll(path)
	}
	half, err := os.MkdirTemp(c.dir, filepath.Base(dir)+".new-")
	if err == nil {
		err = os.Chmod(half, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	if err := build(ctx, half); err != nil {
		_ = os.RemoveAll(half)
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	if err := os.Rename(half, dir); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	fmt.Fprintf(c.log, "host: built %s in %d s\n", name, int(time.Since(started).Seconds()))
	return dir, nil
}

// lockFile takes the lock on a file, waiting until ctx ends. The kernel frees
// it when the holder dies.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			_ = f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// lockedWriter lets several builders write progress lines to one writer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes p in one piece.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
