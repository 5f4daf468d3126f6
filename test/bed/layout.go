package bed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// layout knows where things lie in a bed's directory.
type layout string

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

// logs holds a log file a program.
func (l layout) logs() string { return l.path("logs") }

// pids holds a pid file a program.
func (l layout) pids() string { return l.path("pids") }

// pki holds the management cluster's certificates and keys.
func (l layout) pki(name string) string { return l.path("pki", name) }

// kubeconfig is how one user reaches the management cluster.
func (l layout) kubeconfig(user string) string { return l.path("kubeconfigs", user+".conf") }

// entries are all that a bed puts into its directory.
var entries = []string{"bin", "engine", "etcd", "flux", "hosts", "kubeconfigs", "kubectl", "logs", "management", "network", "pids", "pki", "env", "plan.json", "pods", "proxmox", "repository", "sources", VaultName, "vcenter"}

// clear removes the files that a bed created in the directory, and the
// directory if it is empty then.
func (l layout) clear() error {
	if l == "" {
		return nil
	}
	for _, entry := range entries {
		if err := os.RemoveAll(l.path(entry)); err != nil {
			return fmt.Errorf("removing files: %w", err)
		}
	}
	err := os.Remove(string(l))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("removing files: %w", err)
	}
	return nil
}

// defaultDir is where a bed lies that names no directory.
func defaultDir(name string) string { return filepath.Join(Cache(), "beds", name) }

// Cache returns the directory that survives beds: $NOVA_CACHE, or a folder of
// the user's cache directory.
func Cache() string {
	if dir := os.Getenv("NOVA_CACHE"); dir != "" {
		return dir
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "cluster-api-provider-nova")
}
