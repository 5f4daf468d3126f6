// Command nova-autosign decides for a Puppet CA whether it signs the certificate of
// a node. Puppet runs it as the autosign policy, with the certname as argument and
// the certificate request as standard input:
//
//	nova-autosign [-keys DIR] [-records DIR] CERTNAME
//
// It ends with 0 if the request may be signed. Otherwise the reason is on the
// standard error, which the Puppet server logs.
package main

import (
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nova-platform/cluster-api-provider-nova/internal/enrollment"
)

// maxRequest limits a request, in bytes. Nodes have no certificate when they send it.
const maxRequest = 64 << 10

func main() {
	keys := flag.String("keys", "/etc/nova-autosign/keys", "Folder with the public keys of management clusters, as files that end in .pem.")
	records := flag.String("records", "/var/lib/nova-autosign", "Folder for the keys of nodes that have a certificate. The user of the Puppet server must be able to write to it.")
	flag.Parse()
	if err := run(flag.Args(), os.Stdin, *keys, *records); err != nil {
		fmt.Fprintf(os.Stderr, "nova-autosign: refused: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, input io.Reader, keys, records string) error {
	if len(args) != 1 {
		return errors.New("usage: nova-autosign [-keys DIR] [-records DIR] CERTNAME")
	}
	content, err := io.ReadAll(io.LimitReader(input, maxRequest))
	if err != nil {
		return fmt.Errorf("reading certificate request: %w", err)
	}
	trusted, err := readKeys(keys)
	if err != nil {
		return err
	}
	request, err := enrollment.Check(content, args[0], trusted, time.Now())
	if err != nil {
		return err
	}
	return enrollment.Record(records, request)
}

// readKeys reads the keys of management clusters. One that cannot be read refuses
// all requests, so that a mistake is noticed at once.
func readKeys(folder string) ([]ed25519.PublicKey, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.pem"))
	if err != nil {
		return nil, fmt.Errorf("listing keys: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s contains no key of a management cluster", folder)
	}
	var keys []ed25519.PublicKey
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading key: %w", err)
		}
		key, err := enrollment.ParseKey(content)
		if err != nil {
			return nil, fmt.Errorf("reading key %s: %w", path, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
