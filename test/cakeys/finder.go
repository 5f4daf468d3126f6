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
	"strings"
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
	// patterns are in keys in DER, and encoded are they in base64.
	patterns, encoded [][]byte
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
		f.encoded = append(f.encoded, beginnings(string(pattern))...)
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

// breaks are the line breaks in base64, also those of YAML and JSON.
var breaks = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "", `\n`, "", `\r`, "")

// begins are the beginnings of base64 of what may contain a key: DER, a key in PEM, and
// gzip. Each has one for each position in the base64 of a text that begins before.
var begins = beginnings("-----BEGIN", "\x1f\x8b\x08")

// beginnings returns the middle of the base64 of texts at each position.
func beginnings(texts ...string) [][]byte {
	var all [][]byte
	for _, text := range texts {
		for before := range 3 {
			code := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text))
			// The first and the last character contain other bits, too.
			from := (before*8 + 5) / 6 //nolint:mnd // bits of a byte and of a character
			to := (before + len(text)) * 8 / 6
			all = append(all, []byte(code[from:to]))
		}
	}
	return all
}

// inBase64 decodes base64 that has a key in DER, a text in PEM or gzip in it.
func (f *Finder) inBase64(data []byte, depth int) bool {
	joined := []byte(breaks.Replace(string(data)))
	for _, pattern := range f.encoded {
		if bytes.Contains(joined, pattern) {
			return true
		}
	}
	for _, begin := range begins {
		for at := 0; ; {
			next := bytes.Index(joined[at:], begin)
			if next < 0 {
				break
			}
			at += next
			if f.in(decodeAround(joined, at), depth) {
				return true
			}
			at += len(begin)
		}
	}
	return false
}

// decodeAround decodes the base64 around a position.
func decodeAround(data []byte, at int) []byte {
	const back = 4
	from := max(0, at-back)
	var longest []byte
	for from <= at {
		end := from
		for end < len(data) && end-from < maxUnpacked && strings.IndexByte(alphabet, data[end]) >= 0 {
			end++
		}
		if end > at {
			for offset := range min(offsets, end-from) {
				decoded := make([]byte, base64.RawStdEncoding.DecodedLen(end-from-offset))
				n, _ := base64.RawStdEncoding.Decode(decoded, data[from+offset:end])
				longest = append(longest, decoded[:n]...)
			}
			return longest
		}
		from = end + 1
	}
	return longest
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

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
