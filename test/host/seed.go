package host

import (
	"fmt"
	"os"
	"path/filepath"
)

// seedDirs are the directories in which cloud-init looks for the files of a
// drive when there is no such drive, by the drive's volume label. A host has
// no block devices, so drives are given to it in this way.
var seedDirs = map[string]string{
	"config-2": "config_drive",
	"cidata":   "nocloud",
}

// checkSeeds refuses drives that cloud-init does not know, and files outside
// of a drive.
func checkSeeds(seeds map[string]map[string][]byte) error {
	for label, files := range seeds {
		if seedDirs[label] == "" {
			return fmt.Errorf("seed %q: only config-2 and cidata are known", label)
		}
		for path := range files {
			if !filepath.IsLocal(path) {
				return fmt.Errorf("seed %s: %q is no path on it", label, path)
			}
		}
	}
	return nil
}

// writeSeeds lays out the drives. One that is no longer there is not in the
// next boot either.
func (h *Host) writeSeeds() error {
	root := filepath.Join(h.dir, "seed")
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	for label, files := range h.spec.Seeds {
		for path, data := range files {
			if err := writeFile(filepath.Join(root, seedDirs[label], path), data, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
