package host

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

//go:embed files/import.sh
var importScript string

//go:embed files/kube-proxy.sh
var kubeProxyScript string

//go:embed pause/main.go
var pauseSource string

// imageEntrypoints lists the images that start their program by their
// entrypoint. For the others the program is named, so it must be in the search
// path.
var imageEntrypoints = map[string]string{
	"coredns":  "/coredns",
	"kube-vip": "/kube-vip",
	"pause":    "/pause",
}

// buildContainerd makes a data directory of containerd with the images of all
// versions in it: while a cluster moves from one to another, hosts of both run
// pods of either.
func buildContainerd(ctx context.Context, c cache, debian string, all []distribution) (string, error) {
	var key []string
	for _, d := range all {
		key = append(append(key, programsKey(d.programs, slices.Concat(imagePrograms, imageTools["etcd"]))...), fmt.Sprint(d.images))
	}
	key = append(key, filepath.Base(debian), importScript, kubeProxyScript, pauseSource)
	return c.get(ctx, "containerd", key, func(ctx context.Context, dir string) error {
		work, err := os.MkdirTemp(c.dir, ".images-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(work) }()
		archives := filepath.Join(work, "archives")
		if err := os.MkdirAll(archives, 0o755); err != nil {
			return err
		}
		for _, d := range all {
			if err := writeImages(ctx, d, debian, work, archives); err != nil {
				return fmt.Errorf("images of Kubernetes %s: %w", d.version, err)
			}
		}
		return importImages(ctx, debian, archives, dir)
	})
}

// writeImages writes an archive for each image of a version. Those that another
// version has too are there already.
func writeImages(ctx context.Context, d distribution, debian, work, archives string) error {
	for _, name := range append([]string{"pause"}, imagePrograms...) {
		ref := d.images[name]
		if ref == "" {
			return fmt.Errorf("kubeadm names no image for %s", name)
		}
		archive := filepath.Join(archives, digest([]byte(ref))+".tar")
		if exists(archive) {
			continue
		}
		root := filepath.Join(work, name)
		if err := fillImage(ctx, name, root, debian, d.programs[name]); err != nil {
			return fmt.Errorf("filling image %s: %w", name, err)
		}
		for _, tool := range imageTools[name] {
			if err := copyFile(d.programs[tool], filepath.Join(root, "usr/local/bin", tool), 0o755); err != nil {
				return fmt.Errorf("filling image %s: %w", name, err)
			}
		}
		if err := writeImage(archive, ref, imageEntrypoints[name], "", root); err != nil {
			return fmt.Errorf("writing image %s: %w", name, err)
		}
		if err := os.RemoveAll(root); err != nil {
			return err
		}
	}
	return nil
}

// importImages lets the hosts' containerd unpack archives into data.
func importImages(ctx context.Context, debian, archives, data string) error {
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"/bin/sh", "-euc", importScript, "import.sh")
	cmd.Env = append(os.Environ(), "ROOT="+debian, "ARCHIVES="+archives, "DATA="+data)
	return runQuietly(cmd)
}

// fillCommon lays out the directories and users that all images have.
func fillCommon(root string) error {
	for _, dir := range []string{"etc", "tmp", "usr/local/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky); err != nil {
		return err
	}
	users := "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	return writeFile(filepath.Join(root, "etc/passwd"), []byte(users), 0o644)
}

// fillImage lays out the files of an image under root.
func fillImage(ctx context.Context, name, root, debian, program string) error {
	if err := fillCommon(root); err != nil {
		return err
	}
	target := imageEntrypoints[name]
	if target == "" {
		target = "/usr/local/bin/" + name
	}
	switch name {
	case "pause":
		return tools.Build(ctx, filepath.Join(root, target), "", "./test/host/pause")
	case "kube-proxy":
		cmd := exec.CommandContext(ctx, "/bin/sh", "-euc", kubeProxyScript, "kube-proxy.sh")
		cmd.Env = append(os.Environ(), "DEBIAN="+debian, "ROOT="+root)
		if err := runQuietly(cmd); err != nil {
			return err
		}
	}
	return copyFile(program, filepath.Join(root, target), 0o755)
}

// writeImage writes the tree under root as an archive in Docker's format, one
// layer, known by ref.
func writeImage(path, ref, entrypoint, user, root string) (err error) {
	var layer bytes.Buffer
	if err := writeLayer(&layer, root); err != nil {
		return err
	}
	layerSum := digest(layer.Bytes())
	process := map[string]any{"Env": []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, "WorkingDir": "/"}
	if entrypoint != "" {
		process["Entrypoint"] = []string{entrypoint}
	}
	if user != "" {
		process["User"] = user
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       process,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerSum}},
	})
	if err != nil {
		return err
	}
	configName, layerName := digest(config)+".json", layerSum+"/layer.tar"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{ref}, "Layers": []string{layerName},
	}})
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	archive := tar.NewWriter(out)
	for _, part := range []struct {
		name string
		data []byte
	}{{configName, config}, {layerName, layer.Bytes()}, {"manifest.json", manifest}} {
		if err := archive.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.data))}); err != nil {
			return err
		}
		if _, err := archive.Write(part.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeLayer writes a tree as a tar stream that depends on nothing but the
// names, modes and bytes in it.
func writeLayer(w io.Writer, root string) error {
	layer := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var link string
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		header = &tar.Header{
			Typeflag: header.Typeflag, Name: strings.TrimPrefix(path, root+"/"), Linkname: link,
			Mode: header.Mode, Size: header.Size,
		}
		if entry.IsDir() {
			header.Name += "/"
		}
		if err := layer.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = layer.Write(data)
		return err
	})
	return errors.Join(err, layer.Close())
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
