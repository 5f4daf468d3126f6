package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user and group of the process, without privileges. The manager's
// Deployment sets the same.
const user = "65532:65532"

// managerImage returns the image of a manager for one architecture.
func managerImage(binary, arch, version string, made time.Time) (v1.Image, error) {
	content, err := files(binary, made)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "nova-release images"},
	})
	if err != nil {
		return nil, fmt.Errorf("making image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("making image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: made}
	config.Config = v1.Config{
		Entrypoint: []string{"/manager"},
		User:       user,
		WorkingDir: "/",
		Labels:     map[string]string{"org.opencontainers.image.version": version},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("making image: %w", err)
	}
	return image, nil
}

// files returns a tar archive with the binary as /manager. The binary contains the
// CAs that are trusted unless others are mounted, so there is no other file.
func files(binary string, made time.Time) ([]byte, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading manager: %w", err)
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
