package main

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// signer signs with a private key. It implements dsse.Signer.
type signer struct{ key crypto.Signer }

// readKey reads a private key in PEM: one of "cosign generate-key-pair", which is
// encrypted with the password in COSIGN_PASSWORD, or one without encryption. No
// file gives no signer.
func readKey(file string) (*signer, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading private key: %w", err)
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(data, func(bool) ([]byte, error) {
		return []byte(os.Getenv("COSIGN_PASSWORD")), nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading private key %s, with the password in COSIGN_PASSWORD: %w", file, err)
	}
	private, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("reading private key %s: a key of type %T cannot sign", file, key)
	}
	return &signer{private}, nil
}

// Sign returns the signature of a message. A signature contains no randomness
// (for ECDSA: RFC 6979), so that a release with a key is reproducible too.
func (s *signer) Sign(_ context.Context, message []byte) ([]byte, error) {
	if _, ok := s.key.(ed25519.PrivateKey); ok {
		return s.key.Sign(nil, message, crypto.Hash(0))
	}
	sum := sha256.Sum256(message)
	return s.key.Sign(nil, sum[:], crypto.SHA256)
}

// KeyID returns no ID: a verifier knows the one key.
func (s *signer) KeyID() (string, error) { return "", nil }

// signFile writes the signature of a file beside it, as "cosign sign-blob" does.
func signFile(ctx context.Context, flags *flag.FlagSet, args []string) error {
	key := flags.String("key", "", "The file with the private key.")
	file, err := argument(flags, args, "file")
	if err != nil {
		return err
	}
	if *key == "" {
		return errors.New("-key is needed")
	}
	s, err := readKey(*key)
	if err != nil {
		return err
	}
	data, err := mapFile(file)
	if err != nil {
		return fmt.Errorf("reading file to sign: %w", err)
	}
	signature, err := s.Sign(ctx, data)
	if err != nil {
		return fmt.Errorf("signing %s: %w", file, err)
	}
	if err := os.WriteFile(file+".sig", []byte(base64.StdEncoding.EncodeToString(signature)), 0o644); err != nil {
		return fmt.Errorf("writing signature: %w", err)
	}
	return nil
}

// mapFile maps a file into memory instead of reading it: a bundle may be larger
// than the memory, and a key of Ed25519 needs the whole message twice. The map
// lasts until the program ends.
func mapFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	return syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
}
