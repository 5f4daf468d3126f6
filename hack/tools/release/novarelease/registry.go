package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// client connects to a registry, or to the packages of a GitLab.
type client struct{ transport *http.Transport }

// newClient returns a client that trusts the CAs of the system, and one more.
func newClient(ca string) (client, error) {
	c := client{remote.DefaultTransport.(*http.Transport).Clone()}
	if ca == "" {
		return c, nil
	}
	data, err := os.ReadFile(ca)
	if err != nil {
		return c, fmt.Errorf("reading CA: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return c, fmt.Errorf("reading CAs of the system: %w", err)
	}
	if !pool.AppendCertsFromPEM(data) {
		return c, fmt.Errorf("reading CA: %s contains no certificate in PEM", ca)
	}
	c.transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return c, nil
}

func (c client) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(c.transport), remote.WithAuthFromKeychain(authn.DefaultKeychain),
	}
}

// explain adds the next step to an error of a server.
func explain(server string, err error) error {
	var answer *transport.Error
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer) && answer.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s rejects the credentials: run \"docker login %s\": %w", server, server, err)
	case errors.As(err, &answer) && answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the user has no permission to write to %s: %w", server, err)
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of %s is signed by an unknown CA: name the file of the CA with -ca: %w", server, err)
	}
	return err
}

// push copies all images of a layout to a registry.
func push(ctx context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("layout", "", "The folder with the images.")
	ca := flags.String("ca", "", "A file with the CA of the registry.")
	registry, err := argument(flags, args, "registry, such as registry.example.com/nova")
	if err != nil {
		return err
	}
	c, err := newClient(*ca)
	if err != nil {
		return err
	}
	path, err := layout.FromPath(*dir)
	if err != nil {
		return fmt.Errorf("reading images in %s: %w", *dir, err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		return fmt.Errorf("reading images in %s: %w", *dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("reading images in %s: %w", *dir, err)
	}
	for _, entry := range manifest.Manifests {
		ref, err := name.ParseReference(registry + "/" + entry.Annotations[refName])
		if err != nil {
			return fmt.Errorf("reading name of image %s: %w", entry.Digest, err)
		}
		if err := explain(ref.Context().RegistryStr(), c.write(ctx, index, entry, ref)); err != nil {
			return fmt.Errorf("pushing %s: %w", ref, err)
		}
		fmt.Println(ref)
	}
	return nil
}

// write pushes one entry of an index.
func (c client) write(ctx context.Context, from v1.ImageIndex, entry v1.Descriptor, ref name.Reference) error {
	if entry.MediaType.IsIndex() {
		index, err := from.ImageIndex(entry.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, index, c.options(ctx)...)
	}
	image, err := from.Image(entry.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, image, c.options(ctx)...)
}

// pull adds the images of a list to a layout. A line names an image, and may name
// the image in the layout. If it does not, that is the path of the image at its
// registry. Empty lines and lines that begin with # are ignored.
func pull(ctx context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("layout", "", "The folder that the images are added to. It is made if it does not exist.")
	from := flags.String("from", "", "A registry that has all images below their paths. If not set, each image is pulled from its own registry.")
	arch := flags.String("arch", "", "The architecture that is pulled, such as amd64. If not set, all are.")
	ca := flags.String("ca", "", "A file with the CA of the registry.")
	list, err := argument(flags, args, "file with a list of images")
	if err != nil {
		return err
	}
	c, err := newClient(*ca)
	if err != nil {
		return err
	}
	path, err := layout.FromPath(*dir)
	if os.IsNotExist(err) {
		path, err = newLayout(*dir)
	}
	if err != nil {
		return fmt.Errorf("reading images in %s: %w", *dir, err)
	}
	file, err := os.Open(list)
	if err != nil {
		return fmt.Errorf("reading list of images: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) > 2 {
			return fmt.Errorf("reading list of images: %q has more than an image and a name", lines.Text())
		}
		if err := c.read(ctx, path, *from, *arch, words); err != nil {
			return fmt.Errorf("pulling %s: %w", words[0], err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading list of images: %w", err)
	}
	return nil
}

// read adds one image to a layout.
func (c client) read(ctx context.Context, to layout.Path, from, arch string, words []string) error {
	ref, err := name.ParseReference(words[0])
	if err != nil {
		return err
	}
	called := ref.Context().RepositoryStr() + ref.Name()[len(ref.Context().Name()):]
	if from != "" {
		if ref, err = name.ParseReference(from + "/" + called); err != nil {
			return err
		}
	}
	if len(words) == 2 {
		called = words[1]
	}
	annotation := layout.WithAnnotations(map[string]string{refName: called})
	options := c.options(ctx)
	if arch != "" {
		options = append(options, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return explain(ref.Context().RegistryStr(), err)
	}
	fmt.Println(ref)
	if found.MediaType.IsIndex() && arch == "" {
		index, err := found.ImageIndex()
		if err != nil {
			return err
		}
		return to.AppendIndex(index, annotation)
	}
	image, err := found.Image()
	if err != nil {
		return err
	}
	if media, err := image.MediaType(); err != nil || media == types.DockerManifestSchema1 {
		return errors.Join(errors.New("the image has a format that registries no longer accept"), err)
	}
	return to.AppendImage(image, annotation)
}
