package host

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAptMirror(t *testing.T) {
	for _, test := range []struct {
		name, file, data, want string
	}{
		{"one line", "sources.list", "deb http://mirror.example/debian bookworm main contrib\n", "http://mirror.example/debian"},
		{"options", "sources.list.d/a.list", "deb [arch=amd64 signed-by=/k] http://mirror.example/debian bookworm main\n", "http://mirror.example/debian"},
		{"comment", "sources.list", "# deb http://old.example/debian bookworm main\n", ""},
		{"source packages", "sources.list", "deb-src http://mirror.example/debian bookworm main\n", ""},
		{"other suites", "sources.list", "deb http://a.example/debian bookworm-updates main\ndeb http://b.example/debian trixie main\n", ""},
		{"another release of the archive", "sources.list", "deb http://a.example/debian sid main\n", "http://a.example/debian"},
		{"both releases", "sources.list", "deb http://a.example/debian sid main\ndeb http://b.example/debian bookworm main\n", "http://b.example/debian"},
		{"other components", "sources.list", "deb http://a.example/debian bookworm contrib\n", ""},
		{
			"stanzas", "sources.list.d/debian.sources",
			"Types: deb\nURIs: http://a.example/security\nSuites: bookworm-security\nComponents: main\n\n" +
				"Types: deb deb-src\n# comment\nURIs: http://b.example/debian http://c.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n",
			"http://b.example/debian",
		},
		{"disabled stanza", "sources.list.d/debian.sources", "Enabled: no\nTypes: deb\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			etc := t.TempDir()
			if err := writeFile(filepath.Join(etc, test.file), []byte(test.data), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := aptMirror(etc, "bookworm", "sid")
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestFindSystem(t *testing.T) {
	systems, err := recipeSystems()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"debian-12":    {"bookworm", "trixie"},
		"debian-13":    {"trixie", "bookworm"},
		"ubuntu-24.04": {"noble"},
		"debian":       nil,
	} {
		system, got, err := findSystem(systems, name)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) || (err == nil && system.name != name) {
			t.Errorf("%s: got %q with releases %q, %v, want %q", name, system.name, got, err, want)
		}
	}
}

func TestTreeOptions(t *testing.T) {
	for options, want := range map[string]string{
		"rw,cpu,cpuacct":        "cpu,cpuacct",
		"rw,memory":             "memory",
		"rw,xattr,name=systemd": "none,name=systemd,xattr",
		"rw,cpuset,clone_children,release_agent=/x": "cpuset",
	} {
		if got := treeOptions(options); got != want {
			t.Errorf("%s: got %q, want %q", options, got, want)
		}
	}
}

// The main thread of a program never ends: if it enters other namespaces, it
// remains in them.
func TestOnThreadLeavesMainThread(t *testing.T) {
	var calls sync.WaitGroup
	var onMain atomic.Int32
	for range 2000 {
		for range 4 {
			calls.Go(func() {
				_ = onThread(func() error {
					if unix.Gettid() == unix.Getpid() {
						onMain.Add(1)
					}
					return nil
				})
			})
		}
		calls.Wait()
	}
	if n := onMain.Load(); n > 0 {
		t.Errorf("%d of 8000 calls were on the main thread", n)
	}
}

func TestLinkTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for _, name := range []string{"blobs/a", "meta/meta.db"} {
		if err := writeFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(from, "blobs/link")); err != nil {
		t.Fatal(err)
	}
	if err := linkTree(from, to); err != nil {
		t.Fatal(err)
	}
	for name, shared := range map[string]bool{"blobs/a": true, "meta/meta.db": false} {
		data, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(data) != name {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
		one, _ := os.Stat(filepath.Join(from, name))
		two, _ := os.Stat(filepath.Join(to, name))
		if os.SameFile(one, two) != shared {
			t.Errorf("%s: shared is %t", name, !shared)
		}
	}
	if target, err := os.Readlink(filepath.Join(to, "blobs/link")); err != nil || target != "a" {
		t.Errorf("link: got %q, %v", target, err)
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "bed-1": true, "0a": true,
		"": false, ".": false, "a/b": false, "-a": false, "a-": false, "A": false, "a b": false,
	} {
		if err := checkName("disk", name); (err == nil) != ok {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestCacheBuildsOnce(t *testing.T) {
	t.Setenv("NOVA_CACHE", t.TempDir())
	var builds atomic.Int32
	build := func(_ context.Context, dir string) error {
		builds.Add(1)
		return writeFile(filepath.Join(dir, "file"), nil, 0o644)
	}
	dirs := make([]string, 4)
	var group sync.WaitGroup
	for i := range dirs {
		group.Go(func() {
			c, err := newCache(io.Discard)
			if err != nil {
				t.Error(err)
				return
			}
			if dirs[i], err = c.get(t.Context(), "thing", []string{"a"}, build); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if builds.Load() != 1 || len(slices.Compact(dirs)) != 1 || !exists(filepath.Join(dirs[0], "file")) {
		t.Errorf("got %d builds in %v", builds.Load(), dirs)
	}
	c, err := newCache(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := c.get(t.Context(), "thing", []string{"b"}, build); err != nil || other == dirs[0] {
		t.Errorf("another key: got %s, %v", other, err)
	}
}

func TestCacheKeepsNothingHalfBuilt(t *testing.T) {
	t.Setenv("NOVA_CACHE", t.TempDir())
	c, err := newCache(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	_, err = c.get(t.Context(), "thing", nil, func(_ context.Context, dir string) error {
		return errors.Join(writeFile(filepath.Join(dir, "half"), nil, 0o644), broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	dir, err := c.get(t.Context(), "thing", nil, func(_ context.Context, dir string) error {
		return writeFile(filepath.Join(dir, "whole"), nil, 0o644)
	})
	names, _ := fileNames(dir)
	if err != nil || !slices.Equal(names, []string{"whole"}) {
		t.Errorf("got %v, %v", names, err)
	}
}
