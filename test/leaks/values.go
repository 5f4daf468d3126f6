package leaks

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

const (
	// shortest is the length of the shortest value that is searched for. A
	// shorter one occurs by chance.
	shortest = 8
	// longest is the length of the prefix that is searched for.
	longest = 64
	// maxUnpacked bounds the size of a decompressed file.
	maxUnpacked = 4 << 20
	// maxDepth bounds how often a file is inside another one.
	maxDepth = 4
)

// public are keys of Secrets whose values are not confidential.
var public = []string{
	"ca.crt", "tls.crt", "format", "namespace", "username", "user", "server", "url", "host", "bucket", "endpoint",
	"snapshot", "expires", "sha256", "accessKeyID", "auth-extra-groups", "expiration", "token-id", "known_hosts",
	"identity.pub", "ovirt_url", "ovirt_username", "ovirt_cafile",
}

var (
	// blob is something that may be encoded.
	blob = regexp.MustCompile(`[A-Za-z0-9+/]{40,}={0,2}`)
	// assigned is a value whose name marks it as confidential.
	assigned = regexp.MustCompile(`(?i)(?:token|password|passwd|secret_?access_?key|secret_?key)["']?\s*[:=]\s*["']?([^\s"',}]+)`)
	// shaped are values that are confidential by their shape.
	shaped = []*regexp.Regexp{
		regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
		regexp.MustCompile(`X-Amz-Signature=[0-9a-f]{64}`),
		regexp.MustCompile(`AGE-SECRET-KEY-[A-Z0-9]+`),
	}
	// host is an address, which is no secret even in a Secret.
	host = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?$`)
)

// Values are the confidential values of Secrets. The zero value has none; it is
// safe for concurrent use.
type Values struct {
	mu sync.Mutex
	// from is where each value is from.
	from map[string]Origin
	// index has the values by their first bytes.
	index map[[shortest]byte][]string
}

// Origin is where a value is from.
type Origin struct{ Namespace, Name, Key string }

// Add adds the values of a Secret.
func (v *Values) Add(secret *corev1.Secret) {
	for key, value := range secret.Data {
		if slices.Contains(public, key) || strings.HasPrefix(string(secret.Type), "helm.sh/release") {
			continue
		}
		for _, one := range confidential(value) {
			v.add(one, Origin{secret.Namespace, secret.Name, key})
		}
	}
}

func (v *Values) add(value string, from Origin) {
	if value = value[:min(len(value), longest)]; len(value) < shortest {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.from[value]; known {
		return
	}
	if v.from == nil {
		v.from, v.index = map[string]Origin{}, map[[shortest]byte][]string{}
	}
	v.from[value] = from
	begin := [shortest]byte([]byte(value))
	v.index[begin] = append(v.index[begin], value)
}

// Len returns the number of values.
func (v *Values) Len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.from)
}

// confidential returns the confidential parts of a value of a Secret.
func confidential(value []byte) []string {
	text := strings.TrimSpace(string(value))
	found := inside(value, 0)
	if !strings.Contains(text, "\n") && !isAddress(text) {
		found = append(found, text, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	return found
}

// isAddress reports whether a value is a host name or a URL.
func isAddress(text string) bool {
	if host.MatchString(text) {
		return true
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && u.Host != "" && u.User == nil && u.RawQuery == ""
}

// inside returns the confidential values in a text, including encoded ones.
func inside(text []byte, depth int) []string {
	rest, found := privateKeys(text)
	for _, match := range assigned.FindAllSubmatch(rest, -1) {
		// A path, a variable or a reference is not the value.
		if value := string(match[1]); !strings.ContainsAny(value, "/${<(\\") && len(value) >= shortest {
			found = append(found, value)
		}
	}
	for _, shape := range shaped {
		for _, match := range shape.FindAll(rest, -1) {
			found = append(found, string(match))
		}
	}
	if depth == maxDepth {
		return found
	}
	for _, encoded := range blob.FindAll(rest, -1) {
		// In JSON the ends of lines are escaped.
		content := bytes.ReplaceAll(decode(encoded), []byte(`\n`), []byte("\n"))
		if hidden := inside(content, depth+1); len(hidden) > 0 {
			found = append(append(found, hidden...), string(encoded))
		}
	}
	return found
}

// privateKeys returns the lines of private keys, and the text without any PEM.
func privateKeys(text []byte) (rest []byte, lines []string) {
	for {
		// In YAML the lines are indented.
		begin := bytes.Index(text, []byte("-----BEGIN "))
		if begin < 0 {
			return append(rest, text...), lines
		}
		rest = append(rest, text[:begin]...)
		end := bytes.Index(text[begin:], []byte("-----END "))
		if end < 0 {
			return rest, lines
		}
		body := text[begin : begin+end]
		text = text[begin+end+len("-----END "):]
		head, _, _ := bytes.Cut(body, []byte("\n"))
		if !bytes.Contains(head, []byte("PRIVATE KEY")) {
			continue
		}
		for line := range bytes.Lines(body[len(head):]) {
			// All keys of one algorithm begin alike.
			if line = bytes.TrimSpace(line); len(line) > 48 {
				lines = append(lines, string(line[len(line)-40:]))
			}
		}
	}
}

// decode decodes base64 and decompresses. It returns nil if the result is not
// text.
func decode(encoded []byte) []byte {
	data, err := base64.StdEncoding.DecodeString(string(encoded))
	if err != nil {
		if data, err = base64.RawStdEncoding.DecodeString(string(encoded)); err != nil {
			return nil
		}
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		reader, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil
		}
		if data, err = io.ReadAll(io.LimitReader(reader, maxUnpacked)); err != nil {
			return nil
		}
	}
	if block, _ := pem.Decode(data); block == nil && !utf8.Valid(data) {
		return nil
	}
	return data
}
