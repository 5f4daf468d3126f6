package bed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nova-platform/cluster-api-provider-nova/test/bed/supervisor"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
)

// sourcesName is the process that serves Git repositories and charts.
const sourcesName = "sources"

// sourcesAddress is where it does, for Flux of any management cluster: one
// that follows another reads the same URLs.
const sourcesAddress = host.Gateway + ":9980"

// sourcesDir contains the served files.
func (b *Bed) sourcesDir() string { return b.layout.path("sources") }

func (b *Bed) sourcesProcess(program string) supervisor.Process {
	return supervisor.Process{Name: sourcesName, Args: []string{program, "sources", b.sourcesDir()}}
}

// GitURL is where Flux finds a repository that Publish made.
func (b *Bed) GitURL(repository string) string {
	return "http://" + sourcesAddress + "/git/" + repository + ".git"
}

// ChartsURL is where Flux finds the charts that PublishChart made.
func (b *Bed) ChartsURL() string { return "http://" + sourcesAddress + "/charts" }

// RunSources serves the repositories in dir/git, by Git's own server, the charts
// in dir/charts, and an OCI registry, until the context ends.
func RunSources(ctx context.Context, dir string) error {
	programs, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return fmt.Errorf("finding Git: %w", err)
	}
	for _, part := range []string{"git", "charts", "blobs"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o755); err != nil {
			return fmt.Errorf("making directory of sources: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/git/", &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(programs)), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Join(dir, "git"), "GIT_HTTP_EXPORT_ALL=1"},
	})
	mux.Handle("/charts/", http.StripPrefix("/charts/", http.FileServer(http.Dir(filepath.Join(dir, "charts")))))
	mux.Handle("/v2/", newRegistry(dir))
	server := &http.Server{Addr: sourcesAddress, Handler: mux, ReadHeaderTimeout: time.Minute, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving sources: %w", err)
	}
	return nil
}

// Repository returns the path on disk of a Git repository that is served at
// GitURL, for clone and push. It creates an empty repository if there is none.
func (b *Bed) Repository(ctx context.Context, repository string) (string, error) {
	bare := filepath.Join(b.sourcesDir(), "git", repository+".git")
	if _, err := os.Stat(bare); errors.Is(err, fs.ErrNotExist) {
		return bare, git(ctx, b.Dir, "init", "--quiet", "--bare", "--initial-branch=main", bare)
	}
	return bare, nil
}

// Head is the commit that the branch main of a repository is at.
func (b *Bed) Head(ctx context.Context, repository string) (string, error) {
	bare, err := b.Repository(ctx, repository)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "git", "--git-dir", bare, "rev-parse", "main").Output()
	if err != nil {
		return "", fmt.Errorf("reading main of %s: %w", repository, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Publish commits files, by their paths, as all that a repository has, and
// tags the commit. The branch is main.
func (b *Bed) Publish(ctx context.Context, repository, tag string, files map[string]string) error {
	bare, err := b.Repository(ctx, repository)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(b.Dir, ".publish-")
	if err != nil {
		return fmt.Errorf("publishing %s: %w", repository, err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := git(ctx, b.Dir, "clone", "--quiet", bare, work); err != nil {
		return err
	}
	entries, err := os.ReadDir(work)
	if err != nil {
		return fmt.Errorf("publishing %s: %w", repository, err)
	}
	for _, entry := range entries {
		if entry.Name() != ".git" {
			if err := os.RemoveAll(filepath.Join(work, entry.Name())); err != nil {
				return fmt.Errorf("publishing %s: %w", repository, err)
			}
		}
	}
	for path, content := range files {
		path = filepath.Join(work, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			return fmt.Errorf("publishing %s: %w", repository, err)
		}
	}
	for _, args := range [][]string{
		{"checkout", "--quiet", "-B", "main"},
		{"add", "--all"},
		{"commit", "--quiet", "--allow-empty", "--message", "Release " + tag},
		{"tag", "--force", tag},
		{"push", "--quiet", "--force", "origin", "main", tag},
	} {
		if err := git(ctx, work, args...); err != nil {
			return err
		}
	}
	return nil
}

// git runs Git without the settings of the current user.
func git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=bed", "-c", "user.email=bed@localhost"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running git %s: %w: %s", args[0], err, out)
	}
	return nil
}

// PublishChart packs files, by their paths below the chart's folder, as a
// version of a chart. Chart.yaml is written here.
func (b *Bed) PublishChart(name, version string, files map[string]string) error {
	packed, err := PackChart(name, version, files)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.sourcesDir(), "charts")
	file := name + "-" + version + ".tgz"
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, file), packed, 0o644)); err != nil {
		return fmt.Errorf("writing chart %s: %w", name, err)
	}
	return indexChart(filepath.Join(dir, "index.yaml"), name, version, file, packed)
}

// PackChart packs files as a version of a chart, with a Chart.yaml unless it is among them.
func PackChart(name, version string, files map[string]string) ([]byte, error) {
	meta, err := yaml.Marshal(map[string]any{"apiVersion": "v2", "name": name, "version": version, "description": name})
	if err != nil {
		return nil, fmt.Errorf("packing chart %s: %w", name, err)
	}
	all := map[string]string{"Chart.yaml": string(meta)}
	maps.Copy(all, files)
	var packed bytes.Buffer
	if err := packFiles(&packed, name, all); err != nil {
		return nil, fmt.Errorf("packing chart %s: %w", name, err)
	}
	return packed.Bytes(), nil
}

func packFiles(to *bytes.Buffer, name string, files map[string]string) error {
	zipped := gzip.NewWriter(to)
	archive := tar.NewWriter(zipped)
	var paths []string
	for path := range files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		header := &tar.Header{Name: name + "/" + path, Mode: 0o644, Size: int64(len(files[path]))}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write([]byte(files[path])); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// chartIndex is the index of a chart repository.
type chartIndex struct {
	APIVersion string                  `json:"apiVersion"`
	Entries    map[string][]chartEntry `json:"entries"`
	Generated  time.Time               `json:"generated"`
}

type chartEntry struct {
	APIVersion string    `json:"apiVersion"`
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	URLs       []string  `json:"urls"`
	Digest     string    `json:"digest"`
	Created    time.Time `json:"created"`
}

// indexChart adds a version to the index, or replaces it.
func indexChart(path, name, version, file string, packed []byte) error {
	index := chartIndex{APIVersion: "v1", Entries: map[string][]chartEntry{}}
	data, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(data, &index)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading index of charts: %w", err)
	}
	sum := sha256.Sum256(packed)
	kept := slices.DeleteFunc(index.Entries[name], func(e chartEntry) bool { return e.Version == version })
	index.Entries[name] = append(kept, chartEntry{
		APIVersion: "v2", Name: name, Version: version, URLs: []string{file}, Digest: hex.EncodeToString(sum[:]), Created: time.Now().UTC(),
	})
	index.Generated = time.Now().UTC()
	if data, err = yaml.Marshal(index); err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing index of charts: %w", err)
	}
	return nil
}
