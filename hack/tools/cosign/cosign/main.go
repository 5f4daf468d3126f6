// Command cosign verifies signatures as "cosign verify --key" does, with cosign's
// library. The whole cosign, with the keys of clouds, would take minutes to build.
//
//	cosign verify|verify-attestation -key cosign.pub [-registry-cacert ca.crt] [-type TYPE] IMAGE
//	cosign verify-blob -key cosign.pub -signature FILE.sig FILE
//
// The transparency log is not read, as with --insecure-ignore-tlog.
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/oci"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
	"github.com/sigstore/sigstore/pkg/signature"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cosign:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name a command: verify, verify-attestation or verify-blob")
	}
	flags := flag.NewFlagSet("cosign "+args[0], flag.ExitOnError)
	key := flags.String("key", "", "The file with the public key.")
	signed := flags.String("signature", "", "The file with the signature of a file.")
	kind := flags.String("type", "", "The type of the attestation.")
	ca := flags.String("registry-cacert", "", "The file with the CA of the registry.")
	_ = flags.Parse(args[1:])
	if *key == "" || flags.NArg() != 1 {
		return errors.New("-key and one image or file are needed")
	}
	verifier, err := signature.LoadVerifierFromPEMFile(*key, crypto.SHA256)
	if err != nil {
		return fmt.Errorf("reading public key: %w", err)
	}
	if args[0] == "verify-blob" {
		return verifyBlob(verifier, flags.Arg(0), *signed)
	}
	ref, err := name.ParseReference(flags.Arg(0))
	if err != nil {
		return err
	}
	options, err := client(*ca)
	if err != nil {
		return err
	}
	check := &cosign.CheckOpts{SigVerifier: verifier, IgnoreTlog: true, RegistryClientOpts: options}
	switch args[0] {
	case "verify":
		check.ClaimVerifier = cosign.SimpleClaimVerifier
		_, _, err = cosign.VerifyImageSignatures(ctx, ref, check)
		return err
	case "verify-attestation":
		check.ClaimVerifier = cosign.IntotoSubjectClaimVerifier
		found, _, err := cosign.VerifyImageAttestations(ctx, ref, check)
		if err != nil {
			return err
		}
		return hasType(found, *kind)
	}
	return fmt.Errorf("there is no command %q", args[0])
}

// client returns the options for a registry with a CA of its own.
func client(ca string) ([]ociremote.Option, error) {
	transport := remote.DefaultTransport.(*http.Transport).Clone()
	if ca != "" {
		data, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("reading CA: %w", err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(data)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return []ociremote.Option{ociremote.WithRemoteOptions(
		remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithTransport(transport),
	)}, nil
}

// hasType fails unless one of the attestations has a predicate of the type.
func hasType(found []oci.Signature, kind string) error {
	for _, attestation := range found {
		data, err := attestation.Payload()
		if err != nil {
			return fmt.Errorf("reading attestation: %w", err)
		}
		var envelope struct{ Payload []byte }
		if err := json.Unmarshal(data, &envelope); err != nil {
			return fmt.Errorf("reading attestation: %w", err)
		}
		var statement struct{ PredicateType string }
		if err := json.Unmarshal(envelope.Payload, &statement); err != nil {
			return fmt.Errorf("reading attestation: %w", err)
		}
		if statement.PredicateType == kind {
			return nil
		}
	}
	return fmt.Errorf("no attestation has the type %s", kind)
}

// verifyBlob verifies the signature of a file.
func verifyBlob(verifier signature.Verifier, file, signed string) error {
	encoded, err := os.ReadFile(signed)
	if err != nil {
		return fmt.Errorf("reading signature: %w", err)
	}
	decoded, err := base64.StdEncoding.DecodeString(string(encoded))
	if err != nil {
		return fmt.Errorf("reading signature: %w", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading file: %w", err)
	}
	return verifier.VerifySignature(bytes.NewReader(decoded), bytes.NewReader(data))
}
