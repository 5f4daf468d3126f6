package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation with the name of an entry in a layout.
const refName = "org.opencontainers.image.ref.name"

// releaser makes the images of one release.
type releaser struct {
	dir, version, registry, revision string

	made   time.Time
	signer *signer
	layout layout.Path
}

// newReleaser reads the flags of a release.
func newReleaser(flags *flag.FlagSet, args []string) (*releaser, error) {
	r := &releaser{}
	flags.StringVar(&r.dir, "dir", "", "The folder of the release.")
	flags.StringVar(&r.version, "version", "", "The version, which is the tag of the images.")
	flags.StringVar(&r.registry, "registry", "", "The registry that the signatures name.")
	flags.StringVar(&r.revision, "revision", "", "The commit that the managers are built from.")
	epoch := flags.Int64("epoch", 0, "The time of the release, in seconds since 1970.")
	key := flags.String("key", "", "The file with the private key for signatures. If not set, nothing is signed.")
	_ = flags.Parse(args)
	if r.dir == "" || r.version == "" || r.registry == "" || r.revision == "" || flags.NArg() > 0 {
		return nil, errors.New("-dir, -version, -registry and -revision are needed, and no argument")
	}
	if err := checkRegistry(r.registry); err != nil {
		return nil, err
	}
	r.made = time.Unix(*epoch, 0).UTC()
	r.layout = layout.Path(filepath.Join(r.dir, "images"))
	var err error
	r.signer, err = readKey(*key)
	return r, err
}

// images makes the images of all managers in DIR/bin/ARCH, with the SBOMs in
// DIR/sbom, as the layout DIR/images, and lists their digests in DIR/digests.
func images(ctx context.Context, flags *flag.FlagSet, args []string) error {
	r, err := newReleaser(flags, args)
	if err != nil {
		return err
	}
	if r.layout, err = newLayout(string(r.layout)); err != nil {
		return err
	}
	binaries, err := filepath.Glob(filepath.Join(r.dir, "bin", "*", "*"))
	if err != nil || len(binaries) == 0 {
		return errors.Join(fmt.Errorf("there are no managers in %s", filepath.Join(r.dir, "bin")), err)
	}
	archs := map[string][]string{}
	var managers []string
	for _, binary := range binaries {
		manager := filepath.Base(binary)
		archs[manager] = append(archs[manager], filepath.Base(filepath.Dir(binary)))
		managers = append(managers, manager)
	}
	slices.Sort(managers)
	var digests strings.Builder
	for _, manager := range slices.Compact(managers) {
		digest, err := r.manager(ctx, manager, archs[manager])
		if err != nil {
			return fmt.Errorf("image of %s: %w", manager, err)
		}
		fmt.Fprintf(&digests, "%s %s\n", manager, digest)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "digests"), []byte(digests.String()), 0o644); err != nil {
		return fmt.Errorf("writing digests: %w", err)
	}
	return nil
}

// newLayout makes an empty folder of images.
func newLayout(dir string) (layout.Path, error) {
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("emptying %s: %w", dir, err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", fmt.Errorf("making %s: %w", dir, err)
	}
	return path, nil
}

// manager adds the index of a manager's images to the layout, with all that
// refers to them, and returns the digest of the index.
func (r *releaser) manager(ctx context.Context, manager string, archs []string) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var parts []v1.Descriptor
	var sboms []artifact
	for _, arch := range archs {
		image, err := managerImage(filepath.Join(r.dir, "bin", arch, manager), arch, r.version, r.made)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
		subject, err := describe(image)
		if err != nil {
			return v1.Hash{}, err
		}
		parts = append(parts, subject)
		data, err := os.ReadFile(filepath.Join(r.dir, "sbom", manager+"-"+arch+".cdx.json"))
		if err != nil {
			return v1.Hash{}, fmt.Errorf("reading SBOM: %w", err)
		}
		sboms = append(sboms, artifact{kind: cycloneDX, media: cycloneDX, data: data, subject: subject})
	}
	index = mutate.Annotations(index, map[string]string{
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.revision,
		"org.opencontainers.image.created":  r.made.Format(time.RFC3339),
	}).(v1.ImageIndex)
	if err := r.layout.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: manager + ":" + r.version})); err != nil {
		return v1.Hash{}, fmt.Errorf("writing index: %w", err)
	}
	whole, err := describe(index)
	if err != nil {
		return v1.Hash{}, err
	}
	for _, sbom := range sboms {
		if err := r.attach(manager, "", sbom); err != nil {
			return v1.Hash{}, fmt.Errorf("attaching SBOM: %w", err)
		}
	}
	parts = append([]v1.Descriptor{whole}, parts...)
	if err := r.provenance(ctx, manager, parts, sboms); err != nil {
		return v1.Hash{}, fmt.Errorf("attaching provenance: %w", err)
	}
	return whole.Digest, r.signatures(ctx, manager, parts)
}
