package tools

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root is the root of the work tree that the process was started in. Tests start in the folder of
// their package. The path of this file is not sufficient, because builds with -trimpath remove it.
func Root() string {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "hack", "tools", "build.sh")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			err = os.ErrNotExist
		}
	}
	panic(fmt.Sprintf("finding the root of the work tree: %s", err))
}

// Paths returns the path of each named program, by name, and builds missing ones. Progress is
// written to log, one line per program.
func Paths(ctx context.Context, log io.Writer, names ...string) (map[string]string, error) {
	return paths(log, names, exec.CommandContext(ctx, filepath.Join(Root(), "hack", "tools", "build.sh"), names...))
}

// PathsLater is Paths with the lowest priority, for programs that nothing waits for yet.
func PathsLater(ctx context.Context, log io.Writer, names ...string) (map[string]string, error) {
	script := filepath.Join(Root(), "hack", "tools", "build.sh")
	return paths(log, names, exec.CommandContext(ctx, "nice", append([]string{"-n", "19", script}, names...)...))
}

func paths(log io.Writer, names []string, cmd *exec.Cmd) (map[string]string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = io.MultiWriter(log, &errs)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w: %s", strings.Join(names, ", "), err, errs.String())
	}
	lines := strings.Fields(out.String())
	if len(lines) != len(names) {
		return nil, fmt.Errorf("building %s: got %d paths", strings.Join(names, ", "), len(lines))
	}
	paths := make(map[string]string, len(names))
	for i, name := range names {
		paths[name] = lines[i]
	}
	return paths, nil
}

// Build builds programs of this work tree to output, a file or a folder that ends with a slash.
// symbols are further flags of the linker. Releases, pinned programs and tests are compiled with the
// same flags, so that Go's cache shares the packages that they have in common.
func Build(ctx context.Context, output, symbols string, packages ...string) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w " + symbols, "-o", output}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir, cmd.Env = Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", strings.Join(packages, ", "), err, out)
	}
	return nil
}

// ModuleDir returns the directory of a Go module that this project requires.
func ModuleDir(ctx context.Context, module string) (string, error) {
	return moduleDir(ctx, Root(), module)
}

// ToolDir returns the directory of a Go module that a folder of hack/tools
// pins, downloading it if need be.
func ToolDir(ctx context.Context, folder, module string) (string, error) {
	dir := filepath.Join(Root(), "hack", "tools", folder)
	download := exec.CommandContext(ctx, "go", "mod", "download", module)
	download.Dir = dir
	if out, err := download.CombinedOutput(); err != nil {
		return "", fmt.Errorf("downloading module %s: %w: %s", module, err, out)
	}
	return moduleDir(ctx, dir, module)
}

func moduleDir(ctx context.Context, from, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = from
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", fmt.Errorf("finding module %s: not in the module cache, run go mod download", module)
	}
	return dir, nil
}
