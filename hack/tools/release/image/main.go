// Command image writes the image of a manager to a docker archive: a single
// binary, run as an unprivileged user. It needs no image builder and no registry,
// and its result is reproducible.
//
//	image -binary bin/manager -name registry.example/manager:v1.0.0 -output manager.tar
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is the user and group of the process, without privileges. The manager's
// Deployment sets the same.
const user = "65532:65532"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run() error {
	binary := flag.String("binary", "", "The binary that the image runs.")
	reference := flag.String("name", "", "The image's name with its tag.")
	arch := flag.String("arch", "amd64", "The architecture of the binary.")
	version := flag.String("version", "", "The version in the image's label.")
	epoch := flag.Int64("epoch", 0, "The build time of the image, in seconds since 1970.")
	output := flag.String("output", "", "The archive to write.")
	flag.Parse()
	if *binary == "" || *reference == "" || *output == "" {
		return errors.New("-binary, -name and -output are needed")
	}
	tag, err := name.NewTag(*reference)
	if err != nil {
		return fmt.Errorf("reading name: %w", err)
	}
	made := time.Unix(*epoch, 0).UTC()
	content, err := layer(*binary, made)
	if err != nil {
		return err
	}
	files, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		return fmt.Errorf("making layer: %w", err)
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   files,
		History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "hack/release.sh"},
	})
	if err != nil {
		return fmt.Errorf("making image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("making image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", *arch, v1.Time{Time: made}
	config.Config = v1.Config{
		Entrypoint: []string{"/manager"},
		User:       user,
		WorkingDir: "/",
		Labels:     map[string]string{"org.opencontainers.image.version": *version},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("making image: %w", err)
	}
	if err := tarball.WriteToFile(*output, tag, image); err != nil {
		return fmt.Errorf("writing image: %w", err)
	}
	return nil
}

// layer is a tar archive with the binary as /manager.
func layer(binary string, made time.Time) ([]byte, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading binary: %w", err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	header := &tar.Header{Name: "manager", Mode: 0o755, Size: int64(len(data)), ModTime: made, Format: tar.FormatPAX}
	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("writing layer: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("writing layer: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing layer: %w", err)
	}
	return out.Bytes(), nil
}
