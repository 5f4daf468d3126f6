package enrollment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Record records the key of the first request of a certname in a folder, and
// refuses any other key. A repeated request with the same key is allowed: a CA that
// stops between the answer and the signature gets it again. Requests may be recorded
// at the same time.
func Record(folder string, request Request) error {
	file, err := os.CreateTemp(folder, ".new-*")
	if err != nil {
		return fmt.Errorf("recording key: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // the record is another link to it
	_, err = file.WriteString(request.Key + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("recording key: %w", err)
	}
	path := filepath.Join(folder, request.Identity.Certname)
	// A link fails if the name exists, and is never a part of a file.
	err = os.Link(file.Name(), path)
	if errors.Is(err, os.ErrExist) {
		return sameKey(path, request.Key)
	}
	if err != nil {
		return fmt.Errorf("recording key: %w", err)
	}
	return syncFolder(folder)
}

func sameKey(path, key string) error {
	recorded, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading recorded key: %w", err)
	}
	if strings.TrimSpace(string(recorded)) != key {
		return errors.New("the token was used already, for another key")
	}
	return nil
}

// syncFolder makes a record survive a reset of the server.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("recording key: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("recording key: %w", err)
	}
	return nil
}
