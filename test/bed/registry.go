package bed

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The media types of Helm's charts in OCI registries.
const (
	helmConfig types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	helmChart  types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// OCIChartsURL is where Flux finds the charts that PushChart made. It has no TLS.
func (b *Bed) OCIChartsURL() string { return "oci://" + sourcesAddress + "/charts" }

// newRegistry returns an OCI registry that stores blobs in dir, and tags in memory.
func newRegistry(dir string) http.Handler {
	return registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(filepath.Join(dir, "blobs"))))
}

// PushChart packs files as PublishChart does, pushes them to the OCI registry with the version as tag,
// and returns the digest. A tag that exists is moved.
func (b *Bed) PushChart(ctx context.Context, chart, version string, files map[string]string) (string, error) {
	packed, err := PackChart(chart, version, files)
	if err != nil {
		return "", err
	}
	to, err := name.ParseReference(sourcesAddress+"/charts/"+chart+":"+version, name.Insecure)
	if err != nil {
		return "", fmt.Errorf("naming chart %s: %w", chart, err)
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), helmConfig)
	artifact, err = mutate.AppendLayers(artifact, static.NewLayer(packed, helmChart))
	if err != nil {
		return "", fmt.Errorf("making artifact of chart %s: %w", chart, err)
	}
	if err := remote.Write(to, artifact, remote.WithContext(ctx), remote.WithTransport(&http.Transport{DialContext: b.Dial})); err != nil {
		return "", fmt.Errorf("pushing chart %s: %w", chart, err)
	}
	digest, err := artifact.Digest()
	if err != nil {
		return "", fmt.Errorf("reading digest of chart %s: %w", chart, err)
	}
	return digest.String(), nil
}
