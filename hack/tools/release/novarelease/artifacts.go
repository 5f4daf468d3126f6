package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// The media types of Flux' artifacts and of Helm's charts.
const (
	fluxConfig  = "application/vnd.cncf.flux.config.v1+json"
	fluxContent = "application/vnd.cncf.flux.content.v1.tar+gzip"
	helmConfig  = "application/vnd.cncf.helm.config.v1+json"
	helmContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// maxChartFile bounds Chart.yaml of a chart.
const maxChartFile = 1 << 20

// catalogue adds the folder DIR/catalogue to the layout as catalogue:VERSION, in the
// form of "flux push artifact", and signs it.
func (r *releaser) catalogue(ctx context.Context) error {
	packed, err := pack(os.DirFS(filepath.Join(r.dir, "catalogue")), r.made)
	if err != nil {
		return fmt.Errorf("packing catalogue: %w", err)
	}
	layer, err := r.blob(fluxContent, packed)
	if err != nil {
		return err
	}
	manifest := v1.Manifest{Layers: []v1.Descriptor{layer}, Annotations: map[string]string{
		"org.opencontainers.image.created":  r.made.Format(time.RFC3339),
		"org.opencontainers.image.revision": r.version + "@sha1:" + r.revision,
		"org.opencontainers.image.version":  r.version,
	}}
	manifest.Config.MediaType = fluxConfig
	entry, err := r.add(func(v1.Hash) string { return "catalogue:" + r.version }, manifest)
	if err != nil {
		return err
	}
	return r.signatures(ctx, "catalogue", []v1.Descriptor{entry})
}

// pack returns an archive of a folder that contains nothing but the names and the
// bytes of its files.
func pack(folder fs.FS, made time.Time) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: made, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(data)
		return err
	})
	// The last bytes are written by Close.
	err = errors.Join(err, archive.Close(), zipped.Close())
	return out.Bytes(), err
}

// charts makes a layout of the charts in a folder, files of "helm pull": each is
// charts/NAME:VERSION, in the form of "helm push".
func charts(_ context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("layout", "", "The folder that is made for the charts.")
	folder, err := argument(flags, args, "folder with charts, files of the form NAME-VERSION.tgz")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.tgz"))
	if err != nil || len(files) == 0 {
		return errors.Join(fmt.Errorf("there are no charts in %s: put the files of \"helm pull\" there, NAME-VERSION.tgz", folder), err)
	}
	r := &releaser{}
	if r.layout, err = newLayout(*dir); err != nil {
		return err
	}
	names := map[string]string{}
	for _, file := range files {
		called, err := r.chart(file)
		if err != nil {
			return fmt.Errorf("reading chart %s: %w", file, err)
		}
		if other := names[called]; other != "" {
			return fmt.Errorf("%s and %s are both %s", other, file, called)
		}
		names[called] = file
	}
	return nil
}

// chart adds a chart to the layout, and returns its name there.
func (r *releaser) chart(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	meta, err := chartMeta(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	name, _ := meta["name"].(string)
	version, _ := meta["version"].(string)
	if name == "" || version == "" {
		return "", errors.New("Chart.yaml has no name or no version")
	}
	// A tag cannot contain +: Helm and Flux replace it, too.
	called := "charts/" + name + ":" + strings.ReplaceAll(version, "+", "_")
	layer, err := r.blob(helmContent, data)
	if err != nil {
		return "", err
	}
	config, err := json.Marshal(meta)
	if err != nil {
		return "", fmt.Errorf("writing configuration: %w", err)
	}
	described, err := r.blob(helmConfig, config)
	if err != nil {
		return "", err
	}
	_, err = r.append(func(v1.Hash) string { return called }, v1.Manifest{Config: described, Layers: []v1.Descriptor{layer}, Annotations: map[string]string{
		"org.opencontainers.image.title": name, "org.opencontainers.image.version": version,
	}})
	return called, err
}

// chartMeta reads Chart.yaml of a packed chart.
func chartMeta(packed io.Reader) (map[string]any, error) {
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	archive := tar.NewReader(unzipped)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it contains no NAME/Chart.yaml")
		}
		if err != nil {
			return nil, err
		}
		if matches, _ := path.Match("*/Chart.yaml", path.Clean(header.Name)); !matches {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(archive, maxChartFile))
		if err != nil {
			return nil, err
		}
		meta := map[string]any{}
		return meta, yaml.Unmarshal(data, &meta)
	}
}
