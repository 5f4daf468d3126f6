package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// manifests adds the files of each provider in DIR/repository to the layout
// DIR/images, in the form in which Cluster API Operator reads them:
// PROVIDER:VERSION has one layer per file. It also adds the catalogue of modules.
func manifests(ctx context.Context, flags *flag.FlagSet, args []string) error {
	r, err := newReleaser(flags, args)
	if err != nil {
		return err
	}
	providers, err := filepath.Glob(filepath.Join(r.dir, "repository", "*", r.version))
	if err != nil || len(providers) == 0 {
		return errors.Join(fmt.Errorf("there are no providers in %s", filepath.Join(r.dir, "repository")), err)
	}
	for _, folder := range providers {
		provider := filepath.Base(filepath.Dir(folder))
		files, err := os.ReadDir(folder)
		if err != nil {
			return fmt.Errorf("reading files of %s: %w", provider, err)
		}
		var layers []v1.Descriptor
		for _, file := range files {
			data, err := os.ReadFile(filepath.Join(folder, file.Name()))
			if err != nil {
				return fmt.Errorf("reading files of %s: %w", provider, err)
			}
			mediaType := types.MediaType("application/yaml")
			if filepath.Ext(file.Name()) != ".yaml" {
				mediaType = "text/plain"
			}
			layer, err := r.blob(mediaType, data)
			if err != nil {
				return err
			}
			layer.Annotations = map[string]string{"org.opencontainers.image.title": file.Name()}
			layers = append(layers, layer)
		}
		entry, err := r.add(func(v1.Hash) string { return provider + ":" + r.version },
			v1.Manifest{ArtifactType: "application/vnd.nova-platform.provider.v1", Layers: layers})
		if err != nil {
			return err
		}
		if err := r.signatures(ctx, provider, []v1.Descriptor{entry}); err != nil {
			return err
		}
	}
	return r.catalogue(ctx)
}
