package cakeys

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
)

const (
	// maxDepth is how many encodings around each other are read: base64 in gzip in base64.
	maxDepth = 6
	// maxUnpacked limits unpacked data, in bytes.
	maxUnpacked = 64 << 20
	// offsets are the positions at which base64 may begin in text that continues it.
	offsets = 4
)

// Finder finds the private keys of authorities.
type Finder struct {
	patterns [][]byte
}

// New returns a Finder for the keys of certificates. Keys of other types than ECDSA
// and RSA are an error.
func New(certificates ...*x509.Certificate) (*Finder, error) {
	f := &Finder{}
	for _, c := range certificates {
		pattern, err := patternOf(c)
		if err != nil {
			return nil, fmt.Errorf("searching the key of %s: %w", c.Subject, err)
		}
		f.patterns = append(f.patterns, pattern)
	}
	return f, nil
}

// patternOf returns the bytes of a private key in DER that are not in the certificate: a private
// key contains its public key, after other bytes than a certificate.
func patternOf(c *x509.Certificate) ([]byte, error) {
	switch key := c.PublicKey.(type) {
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			return nil, fmt.Errorf("reading the public key: %w", err)
		}
		// RFC 5915: publicKey [1] BIT STRING.
		bits, err := asn1.Marshal(asn1.BitString{Bytes: point, BitLength: 8 * len(point)})
		if err != nil {
			return nil, fmt.Errorf("encoding the public key: %w", err)
		}
		return asn1.Marshal(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 1, IsCompound: true, Bytes: bits})
	case *rsa.PublicKey:
		modulus, err := asn1.Marshal(key.N)
		if err != nil {
			return nil, fmt.Errorf("encoding the public key: %w", err)
		}
		// RFC 8017: the version 0 is before the modulus.
		return append([]byte{asn1.TagInteger, 1, 0}, modulus...), nil
	}
	return nil, fmt.Errorf("%T is not supported", c.PublicKey)
}

// In reports whether data contains one of the keys, also in base64 or gzip, or in
// both of them.
func (f *Finder) In(data []byte) bool { return f.in(data, maxDepth) }

func (f *Finder) in(data []byte, depth int) bool {
	for _, pattern := range f.patterns {
		if bytes.Contains(data, pattern) {
			return true
		}
	}
	return depth > 0 && (f.inBase64(data, depth-1) || f.inGzip(data, depth-1))
}

// encoded is text that may contain base64, with line breaks of text, YAML and JSON. The
// shortest private key has more characters.
var (
	encoded = regexp.MustCompile(`(?:[A-Za-z0-9+/]|\s|\\[nr]){100,}`)
	breaks  = regexp.MustCompile(`\s+|\\[nr]`)
)

// inBase64 reads base64, wherever it begins: words before it may look like a part of it.
func (f *Finder) inBase64(data []byte, depth int) bool {
	for _, text := range encoded.FindAll(data, -1) {
		text = breaks.ReplaceAll(text, nil)
		for offset := range min(offsets, len(text)) {
			part := text[offset:]
			decoded := make([]byte, base64.RawStdEncoding.DecodedLen(len(part)))
			n, _ := base64.RawStdEncoding.Decode(decoded, part)
			if n > 0 && f.in(decoded[:n], depth) {
				return true
			}
		}
	}
	return false
}

// inGzip unpacks data, wherever it begins.
func (f *Finder) inGzip(data []byte, depth int) bool {
	magic := []byte{0x1f, 0x8b, 8}
	for at := bytes.Index(data, magic); at >= 0; {
		if reader, err := gzip.NewReader(bytes.NewReader(data[at:])); err == nil {
			reader.Multistream(false)
			// What was unpacked before an error counts.
			unpacked, _ := io.ReadAll(io.LimitReader(reader, maxUnpacked))
			if f.in(unpacked, depth) {
				return true
			}
		}
		next := bytes.Index(data[at+1:], magic)
		if next < 0 {
			return false
		}
		at += 1 + next
	}
	return false
}
