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
	"regexp"
	"slices"
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

// registryForm is the form of a registry with a path. A host without a dot or a
// port would be a folder of Docker Hub, unless it is localhost.
var registryForm = regexp.MustCompile(`^(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*:[0-9]+|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

func checkRegistry(registry string) error {
	if !registryForm.MatchString(registry) {
		return fmt.Errorf("registry %q must have the form HOST[:PORT][/PATH], such as registry.example.com/nova, without a scheme and without a slash at its end", registry)
	}
	return nil
}

// pushed is an entry of a layout with its name in a registry.
type pushed struct {
	entry v1.Descriptor
	ref   name.Reference
	image remote.Taggable
}

// named reports whether users know the image by this tag. The tags of signatures and
// attestations consist of the digest of an image.
func (p pushed) named() bool {
	tag, is := p.ref.(name.Tag)
	return is && !strings.HasPrefix(tag.TagStr(), "sha256-")
}

// push copies all images of a layout to a registry.
func push(ctx context.Context, flags *flag.FlagSet, args []string) error {
	dir := flags.String("layout", "", "The folder with the images.")
	ca := flags.String("ca", "", "A file with the CA of the registry.")
	replace := flags.Bool("replace", false, "Replace tags that the registry has with another digest. If not set, that is an error, and nothing is pushed.")
	registry, err := argument(flags, args, "registry, such as registry.example.com/nova")
	if err != nil {
		return err
	}
	if err := checkRegistry(registry); err != nil {
		return err
	}
	c, err := newClient(*ca)
	if err != nil {
		return err
	}
	all, err := entries(*dir, registry)
	if err != nil {
		return fmt.Errorf("reading images in %s: %w", *dir, err)
	}
	if !*replace {
		for _, p := range all {
			if err := explain(p.ref.Context().RegistryStr(), c.absent(ctx, p)); err != nil {
				return fmt.Errorf("checking %s: %w", p.ref, err)
			}
		}
	}
	for _, p := range all {
		// By digest: an image has its tag only after its signatures are there, because
		// a cluster may pull it at any time.
		digest := p.ref.Context().Digest(p.entry.Digest.String())
		if err := explain(digest.RegistryStr(), remote.Push(digest, p.image, c.options(ctx)...)); err != nil {
			return fmt.Errorf("pushing %s: %w", p.ref, err)
		}
	}
	for _, names := range []bool{false, true} {
		for _, p := range all {
			if p.named() != names {
				continue
			}
			if tag, is := p.ref.(name.Tag); is {
				if err := explain(tag.RegistryStr(), remote.Tag(tag, p.image, c.options(ctx)...)); err != nil {
					return fmt.Errorf("tagging %s: %w", p.ref, err)
				}
			}
			fmt.Println(p.ref)
		}
	}
	return nil
}

// entries returns all images of a layout with their names in a registry.
func entries(dir, registry string) ([]pushed, error) {
	path, err := layout.FromPath(dir)
	if err != nil {
		return nil, err
	}
	index, err := path.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all []pushed
	for _, entry := range manifest.Manifests {
		p := pushed{entry: entry}
		if p.ref, err = name.ParseReference(registry + "/" + entry.Annotations[refName]); err != nil {
			return nil, fmt.Errorf("reading name of image %s: %w", entry.Digest, err)
		}
		if entry.MediaType.IsIndex() {
			p.image, err = index.ImageIndex(entry.Digest)
		} else {
			p.image, err = index.Image(entry.Digest)
		}
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", entry.Digest, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// absent fails if the registry has the tag with another digest.
func (c client) absent(ctx context.Context, p pushed) error {
	tag, is := p.ref.(name.Tag)
	if !is {
		return nil
	}
	found, err := remote.Head(tag, c.options(ctx)...)
	var answer *transport.Error
	switch {
	case errors.As(err, &answer) && slices.Contains([]int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden}, answer.StatusCode):
		// Some registries refuse access to a repository that does not exist. If the
		// credentials are wrong, the push fails.
		return nil
	case err != nil:
		return err
	case found.Digest != p.entry.Digest:
		return fmt.Errorf("the registry has the tag with the digest %s, this folder with %s: a published version is never changed", found.Digest, p.entry.Digest)
	}
	return nil
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
