package host

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

//go:embed files/programs.sh
var programsScript string

// Image is an image that hosts have in addition to those of Kubernetes. It
// contains one program that hack/tools pins, or programs of Debian.
type Image struct {
	// Ref is the name that pods use.
	Ref string
	// Program is the name of a program in hack/tools. It is the entrypoint.
	Program string
	// Path is where pods expect the program. If not set, it is in /usr/local/bin.
	Path string `json:",omitempty"`
	// User is the numeric ID of the user that the program runs as. If not set, it is root.
	User string `json:",omitempty"`
	// Debian are programs of the hosts' /usr/bin that the image contains instead.
	Debian []string
}

// entrypoint is where the program is in the image, empty if there is none.
func (i Image) entrypoint() string {
	if i.Program == "" {
		return ""
	}
	return cmp.Or(i.Path, "/usr/local/bin/"+i.Program)
}

// PrepareImages adds images to those that all hosts of the assets have.
func PrepareImages(ctx context.Context, log io.Writer, assets *Assets, images []Image) error {
	if len(images) == 0 {
		return nil
	}
	c, err := openCache(ctx, log)
	if err != nil {
		return err
	}
	var names []string
	for _, image := range images {
		if image.Program != "" {
			names = append(names, image.Program)
		}
	}
	programs := map[string]string{}
	if len(names) > 0 {
		if programs, err = tools.Paths(ctx, c.log, names...); err != nil {
			return err
		}
	}
	described, err := json.Marshal(images)
	if err != nil {
		return fmt.Errorf("describing images: %w", err)
	}
	key := append(programsKey(programs, names), filepath.Base(assets.Containerd), string(described), importScript, programsScript)
	before := assets.Containerd
	assets.Containerd, err = c.get(ctx, "images", key, func(ctx context.Context, dir string) error {
		if err := linkTree(before, dir); err != nil {
			return err
		}
		return addImages(ctx, c, assets.Debian, dir, images, programs)
	})
	return err
}

// addImages imports images into a data directory of containerd.
func addImages(ctx context.Context, c cache, debian, data string, images []Image, programs map[string]string) error {
	work, err := os.MkdirTemp(c.dir, ".images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	archives := filepath.Join(work, "archives")
	if err := os.MkdirAll(archives, 0o755); err != nil {
		return err
	}
	for _, image := range images {
		root := filepath.Join(work, "root")
		if err := fillFurther(ctx, image, root, debian, programs[image.Program]); err != nil {
			return fmt.Errorf("filling image %s: %w", image.Ref, err)
		}
		archive := filepath.Join(archives, digest([]byte(image.Ref))+".tar")
		if err := writeImage(archive, image.Ref, image.entrypoint(), image.User, root); err != nil {
			return fmt.Errorf("writing image %s: %w", image.Ref, err)
		}
		if err := os.RemoveAll(root); err != nil {
			return err
		}
	}
	return importImages(ctx, debian, archives, data)
}

// fillFurther lays out the files of an image under root.
func fillFurther(ctx context.Context, image Image, root, debian, program string) error {
	if err := fillCommon(root); err != nil {
		return err
	}
	if len(image.Debian) > 0 {
		cmd := exec.CommandContext(ctx, "/bin/sh", "-euc", programsScript, "programs.sh")
		cmd.Env = append(os.Environ(), "DEBIAN="+debian, "ROOT="+root, "PROGRAMS="+strings.Join(image.Debian, " "))
		if err := runQuietly(cmd); err != nil {
			return err
		}
	}
	if image.Program == "" {
		return nil
	}
	return copyFile(program, filepath.Join(root, image.entrypoint()), 0o755)
}
