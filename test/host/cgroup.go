package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where every distribution mounts control groups.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is one tree of control groups of this machine.
type hierarchy struct {
	// path is where the machine mounts it.
	path string
	// kind is cgroup or cgroup2, and options are the options that mount the same
	// tree again.
	kind, options string
}

// hierarchies lists the trees of this machine: one, or one a controller and a
// unified one beside them.
func hierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var found []hierarchy
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(super) < 3 || !strings.HasPrefix(super[0], "cgroup") || !strings.HasPrefix(mount[4], cgroupRoot) {
			continue
		}
		h := hierarchy{path: mount[4], kind: super[0]}
		if h.kind == "cgroup" {
			h.options = treeOptions(super[2])
		}
		found = append(found, h)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no control groups are mounted below %s: run this outside of ip netns exec, which hides them", cgroupRoot)
	}
	return found, nil
}

// treeOptions picks from the options of a mount those that say which tree of
// version 1 it is.
func treeOptions(options string) string {
	var tree []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case strings.HasPrefix(option, "name="):
			// systemd keeps attributes of its own in the tree it is named in.
			tree = append(tree, "none", option, "xattr")
		case option == "rw" || option == "ro" || option == "xattr" || option == "clone_children" || strings.HasPrefix(option, "release_agent="):
		default:
			tree = append(tree, option)
		}
	}
	return strings.Join(tree, ",")
}

// group is a control group, the same path in every tree.
type group struct {
	trees []hierarchy
	name  string
}

// bedGroup is the group of all that belongs to a bed.
func bedGroup(bed string) (group, error) {
	trees, err := hierarchies()
	return group{trees: trees, name: bedName(bed)}, err
}

// child is the group of one part of the bed.
func (g group) child(name string) group {
	return group{trees: g.trees, name: filepath.Join(g.name, name)}
}

// dirs are the directories of the group.
func (g group) dirs() []string {
	dirs := make([]string, 0, len(g.trees))
	for _, tree := range g.trees {
		dirs = append(dirs, filepath.Join(tree.path, g.name))
	}
	return dirs
}

// make makes the group in every tree.
func (g group) make() error {
	for _, tree := range g.trees {
		dir := tree.path
		for part := range strings.SplitSeq(g.name, "/") {
			if tree.kind == "cgroup2" {
				enableControllers(dir)
			}
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making a control group: %w", err)
			}
			if err := inheritCpuset(dir); err != nil {
				return fmt.Errorf("making a control group: %w", err)
			}
		}
	}
	return nil
}

// enableControllers enables the controllers of a version 2 group for its
// children. A controller that cannot be enabled is missing in the children.
func enableControllers(dir string) {
	names, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for name := range strings.FieldsSeq(string(names)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644)
	}
}

// inheritCpuset gives a new group of version 1 the processors of its parent:
// without any, it takes no process.
func inheritCpuset(dir string) error {
	if !exists(filepath.Join(dir, "cgroup.clone_children")) || !exists(filepath.Join(dir, "cpuset.cpus")) {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0o644)
}

// add moves a process into the group.
func (g group) add(pid int) error {
	for _, dir := range g.dirs() {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("moving process %d into a control group: %w", pid, err)
		}
	}
	return nil
}

// processes lists the processes in the group and in all groups below it.
func (g group) processes() ([]int, error) {
	var pids []int
	for _, dir := range g.dirs() {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || entry.Name() != "cgroup.procs" {
				return err
			}
			data, err := os.ReadFile(path)
			// A group that is removed during the read has no processes.
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				return err
			}
			for field := range strings.FieldsSeq(string(data)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing the processes of %s: %w", g.name, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// destroy kills all processes of the group and removes it.
func (g group) destroy(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		pids, err := g.processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(pids) == 0 {
			if err := g.remove(); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing control group %s, which still has %d processes: %w", g.name, len(pids), ctx.Err())
		case <-ticker.C:
		}
	}
}

// remove removes the group and the groups below it, which hold no process.
func (g group) remove() error {
	var errs []error
	for _, dir := range g.dirs() {
		var below []string
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				below = append(below, path)
			}
			return nil
		})
		slices.Reverse(below)
		for _, path := range below {
			if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// empty reports whether the group has no child groups.
func (g group) empty() bool {
	for _, dir := range g.dirs() {
		entries, err := os.ReadDir(dir)
		if err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
			return false
		}
	}
	return true
}
