package bed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// supervisorProgram is the program that keeps a bed's other programs running.
const supervisorProgram = "novabed"

// buildPrograms builds programs of this work tree into the cache, where an
// unchanged one costs nothing, and links them into dir: a later build must not
// touch a running bed.
func buildPrograms(ctx context.Context, dir string, packages ...string) (map[string]string, error) {
	sum := sha256.Sum256([]byte(tools.Root()))
	cache := filepath.Join(Cache(), "bin", hex.EncodeToString(sum[:4]))
	if err := errors.Join(os.MkdirAll(cache, 0o755), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, fmt.Errorf("building programs: %w", err)
	}
	unlock, err := lock(filepath.Join(cache, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("building programs: %w", err)
	}
	defer unlock()
	if err := tools.Build(ctx, cache+"/", "", packages...); err != nil {
		return nil, err
	}
	programs := make(map[string]string, len(packages))
	for _, pkg := range packages {
		name := filepath.Base(pkg)
		programs[name] = filepath.Join(dir, name)
		if err := os.Remove(programs[name]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("building programs: %w", err)
		}
		if err := link(filepath.Join(cache, name), programs[name]); err != nil {
			return nil, fmt.Errorf("building programs: %w", err)
		}
	}
	return programs, nil
}

// link links a file, or copies it if the two are on different file systems, or
// if the file belongs to another user, who shares the cache.
func link(from, to string) error {
	err := os.Link(from, to)
	if !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// lock takes a lock between processes, and returns the function that releases
// it.
func lock(path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}
