package snapshots

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
)

const (
	// nameFormat gives names that sort by time.
	nameFormat = "20060102t150405z"
	// content and manifest are the two objects of a snapshot.
	contentSuffix, manifestSuffix = ".db", ".json"

	// partSize is the part of an upload that is held in memory.
	partSize = 16 << 20
	// maxManifest is more than any manifest has.
	maxManifest = 64 << 10
	// answerTimeout limits the wait for a response.
	answerTimeout = time.Minute
	// dialTimeout limits a connection attempt, and is the interval of its
	// keep-alive probes.
	dialTimeout = 15 * time.Second
	// retries is the number of attempts of a request.
	retries = 3
	// maxObjects limits the listed objects of a place: 5,000 snapshots.
	maxObjects = 10_000

	defaultRegion = "us-east-1"
)

// ErrNotFound means that a snapshot is not in the bucket, or is incomplete.
var ErrNotFound = errors.New("there is no such snapshot in the bucket")

// Place is a folder in a bucket.
type Place struct {
	// Endpoint is the server's URL.
	Endpoint string
	Bucket   string
	// Dir is the prefix of the names of all objects.
	Dir    string
	Region string
	// PathStyle puts the bucket's name into the path. If nil, the endpoint
	// decides.
	PathStyle *bool
	// AccessKeyID, SecretAccessKey and SessionToken are the credentials.
	AccessKeyID, SecretAccessKey, SessionToken string
	// CA contains the certificates, in PEM, that verify the server. If not set,
	// the CAs of the system are used.
	CA []byte
	// Encrypted enables encryption with keys of the server; KMSKeyID selects a
	// key of its key service.
	Encrypted bool
	KMSKeyID  string
	// Key signs and verifies manifests. Without a key no snapshot is authentic.
	Key []byte
}

// Snapshot is a complete snapshot in the bucket.
type Snapshot struct {
	// Name names it.
	Name string `json:"name"`
	// Time is when it was started.
	Time time.Time `json:"time"`
	// Size is the number of bytes.
	Size int64 `json:"size"`

	// Only Get sets the following fields.

	// SHA256 is the hash of all bytes, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Revision is etcd's revision at the start.
	Revision int64 `json:"revision"`
	// EtcdVersion is the version of etcd's storage.
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// History distinguishes the data of one etcd from that of another etcd of
	// the same place, before and after a restore. It is empty if unknown.
	History string `json:"history,omitempty"`
	// Cluster, ClusterUID and Member identify the origin.
	Cluster    string `json:"cluster"`
	ClusterUID string `json:"clusterUID"`
	Member     string `json:"member"`
	// Duration is the duration of the snapshot.
	Duration time.Duration `json:"durationNanoseconds"`

	// Signature is the HMAC of the fields above except the duration.
	Signature string `json:"hmacSHA256,omitempty"`
	// Authentic is true if the signature was made with the key of the place.
	Authentic bool `json:"-"`
}

// Name returns the name of a snapshot that is started at a time.
func Name(begun time.Time) string { return begun.UTC().Format(nameFormat) }

// Bucket is a place in a bucket.
type Bucket struct {
	client    *minio.Client
	transport *http.Transport
	place     Place
	// moved counts the bytes transferred over the connections to the server and
	// read from contents.
	moved atomic.Int64
	// window is slowWindow except in tests.
	window time.Duration
}

// Open returns the bucket of a place. It sends no request.
func Open(p Place) (*Bucket, error) {
	endpoint, err := url.Parse(p.Endpoint)
	if err != nil || endpoint.Scheme != "https" {
		return nil, fmt.Errorf("opening bucket: endpoint %q is no https URL", p.Endpoint)
	}
	transport, err := minio.DefaultTransport(true)
	if err != nil {
		return nil, fmt.Errorf("opening bucket: %w", err)
	}
	transport.ResponseHeaderTimeout = answerTimeout
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout, Control: endpoints.ControlFor(endpoint)}).DialContext
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if len(p.CA) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(p.CA) {
			return nil, errors.New("opening bucket: the trusted CA holds no certificate in PEM")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	b := &Bucket{transport: transport, place: p, window: slowWindow}
	transport.DialContext = b.counted(transport.DialContext)
	lookup := minio.BucketLookupAuto
	if p.PathStyle != nil {
		lookup = minio.BucketLookupDNS
		if *p.PathStyle {
			lookup = minio.BucketLookupPath
		}
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(p.AccessKeyID, p.SecretAccessKey, p.SessionToken),
		Secure: true, Transport: limited{transport}, BucketLookup: lookup, MaxRetries: retries,
		Region: cmp.Or(p.Region, defaultRegion),
	})
	if err != nil {
		return nil, fmt.Errorf("opening bucket: %w", err)
	}
	b.client = client
	return b, nil
}

// Close drops idle connections.
func (b *Bucket) Close() { b.transport.CloseIdleConnections() }

// List lists the complete snapshots, from old to new, with the data in the
// names and sizes of the objects.
func (b *Bucket) List(ctx context.Context) ([]Snapshot, error) {
	objects, err := b.objects(ctx)
	if err != nil {
		return nil, err
	}
	var all []Snapshot
	for key, object := range objects {
		name, is := strings.CutSuffix(key, contentSuffix)
		begun, err := time.Parse(nameFormat, name)
		if _, whole := objects[name+manifestSuffix]; is && whole && err == nil && object.Size > 0 {
			all = append(all, Snapshot{Name: name, Time: begun, Size: object.Size})
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// objects lists the objects of the place, by name.
func (b *Bucket) objects(ctx context.Context) (map[string]minio.ObjectInfo, error) {
	ctx, stop := b.guard(ctx)
	defer stop()
	found := map[string]minio.ObjectInfo{}
	for object := range b.client.ListObjects(ctx, b.place.Bucket, minio.ListObjectsOptions{Prefix: b.place.Dir + "/"}) {
		if object.Err != nil {
			return nil, b.failed(ctx, "listing snapshots", object.Err)
		}
		if len(found) >= maxObjects {
			return nil, fmt.Errorf("listing snapshots: bucket %s has more than %d objects under %s/: remove some, or set a prefix of its own",
				b.place.Bucket, maxObjects, b.place.Dir)
		}
		found[path.Base(object.Key)] = object
	}
	return found, nil
}

// Get reads the data about a snapshot. It returns ErrNotFound if the snapshot
// does not exist or is incomplete.
func (b *Bucket) Get(ctx context.Context, name string) (Snapshot, error) {
	s, err := b.Manifest(ctx, name)
	if err != nil {
		return Snapshot{}, err
	}
	return s, b.check(ctx, s)
}

// Manifest reads the data about a snapshot without checking its content.
func (b *Bucket) Manifest(ctx context.Context, name string) (Snapshot, error) {
	ctx, stop := b.guard(ctx)
	defer stop()
	object, err := b.client.GetObject(ctx, b.place.Bucket, b.key(name+manifestSuffix), minio.GetObjectOptions{})
	if err != nil {
		return Snapshot{}, b.failed(ctx, "reading snapshot "+name, err)
	}
	defer func() { _ = object.Close() }()
	data, err := io.ReadAll(io.LimitReader(object, maxManifest))
	if err != nil {
		return Snapshot{}, b.failed(ctx, "reading snapshot "+name, err)
	}
	s := Snapshot{}
	if err := json.Unmarshal(data, &s); err != nil || s.Name != name || s.SHA256 == "" {
		return Snapshot{}, fmt.Errorf("reading snapshot %s: its manifest is not one of ours", name)
	}
	s.Authentic = len(b.place.Key) > 0 && hmac.Equal([]byte(s.Signature), []byte(s.signature(b.place.Key)))
	return s, nil
}

// check compares the content in the bucket with the manifest.
func (b *Bucket) check(ctx context.Context, s Snapshot) error {
	ctx, stop := b.guard(ctx)
	defer stop()
	info, err := b.client.StatObject(ctx, b.place.Bucket, b.key(s.Name+contentSuffix), minio.StatObjectOptions{})
	if err != nil {
		return b.failed(ctx, "reading snapshot "+s.Name, err)
	}
	if info.Size != s.Size {
		return fmt.Errorf("reading snapshot %s: it has %d bytes in the bucket and should have %d", s.Name, info.Size, s.Size)
	}
	return nil
}

// Put uploads the content of a snapshot, in parts, so that little of it is in
// memory. Each part is sent with its hash. If content fails, nothing is stored,
// and the stored content is not a snapshot before Commit.
func (b *Bucket) Put(ctx context.Context, name string, content io.Reader) error {
	ctx, stop := b.guard(ctx)
	defer stop()
	_, err := b.client.PutObject(ctx, b.place.Bucket, b.key(name+contentSuffix), &countedReader{content, &b.moved}, -1, minio.PutObjectOptions{
		PartSize: partSize, SendContentMd5: true, ContentType: "application/octet-stream",
		ServerSideEncryption: b.encryption(),
	})
	if err != nil {
		return b.failed(ctx, "uploading snapshot "+name, err)
	}
	return nil
}

// Commit makes an uploaded content a snapshot.
func (b *Bucket) Commit(ctx context.Context, s Snapshot) error {
	ctx, stop := b.guard(ctx)
	defer stop()
	if err := b.check(ctx, s); err != nil {
		return err
	}
	if len(b.place.Key) > 0 {
		s.Signature = s.signature(b.place.Key)
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("writing manifest of snapshot %s: %w", s.Name, err)
	}
	_, err = b.client.PutObject(ctx, b.place.Bucket, b.key(s.Name+manifestSuffix), bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{SendContentMd5: true, ContentType: "application/json", ServerSideEncryption: b.encryption()})
	if err != nil {
		return b.failed(ctx, "writing manifest of snapshot "+s.Name, err)
	}
	return nil
}

// Delete deletes a snapshot. Its manifest is deleted first: after an
// interruption the rest is not a snapshot, and Sweep deletes it.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	ctx, stop := b.guard(ctx)
	defer stop()
	for _, suffix := range []string{manifestSuffix, contentSuffix} {
		if err := b.client.RemoveObject(ctx, b.place.Bucket, b.key(name+suffix), minio.RemoveObjectOptions{}); err != nil {
			return b.failed(ctx, "deleting snapshot "+name, err)
		}
	}
	return nil
}

// Sweep deletes the objects that interrupted uploads and deletions left before
// a time.
func (b *Bucket) Sweep(ctx context.Context, before time.Time) error {
	objects, err := b.objects(ctx)
	if err != nil {
		return err
	}
	for key, object := range objects {
		name, isContent := strings.CutSuffix(key, contentSuffix)
		counterpart := name + manifestSuffix
		if !isContent {
			counterpart = strings.TrimSuffix(key, manifestSuffix) + contentSuffix
		}
		if _, whole := objects[counterpart]; whole || !ours(key) || object.LastModified.After(before) {
			continue
		}
		if err := b.client.RemoveObject(ctx, b.place.Bucket, b.key(key), minio.RemoveObjectOptions{}); err != nil {
			return b.failed(ctx, "removing leftover "+key, err)
		}
	}
	ctx, stop := b.guard(ctx)
	defer stop()
	uploads := 0
	for upload := range b.client.ListIncompleteUploads(ctx, b.place.Bucket, b.place.Dir+"/", true) {
		if upload.Err != nil {
			return b.failed(ctx, "listing interrupted uploads", upload.Err)
		}
		if uploads++; uploads > maxObjects {
			break // the next call continues
		}
		if !ours(path.Base(upload.Key)) || upload.Initiated.After(before) {
			continue
		}
		if err := b.client.RemoveIncompleteUpload(ctx, b.place.Bucket, upload.Key); err != nil {
			return b.failed(ctx, "removing interrupted upload", err)
		}
	}
	return nil
}

// ours reports whether this package created the object's name.
func ours(name string) bool {
	ext := path.Ext(name)
	_, err := time.Parse(nameFormat, strings.TrimSuffix(name, ext))
	return err == nil && (ext == contentSuffix || ext == manifestSuffix)
}

// URL returns a URL with which any client can download the content of a
// snapshot until it expires.
func (b *Bucket) URL(ctx context.Context, name string, ttl time.Duration) (string, error) {
	u, err := b.client.PresignedGetObject(ctx, b.place.Bucket, b.key(name+contentSuffix), ttl, nil)
	if err != nil {
		return "", b.failed(ctx, "signing URL of snapshot "+name, err)
	}
	return u.String(), nil
}

func (b *Bucket) key(name string) string { return b.place.Dir + "/" + name }

func (b *Bucket) encryption() encrypt.ServerSide {
	if b.place.KMSKeyID != "" {
		if sse, err := encrypt.NewSSEKMS(b.place.KMSKeyID, nil); err == nil {
			return sse
		}
	}
	if b.place.Encrypted {
		return encrypt.NewSSE()
	}
	return nil
}

// failed returns an error with a message that is the same in each attempt:
// without the numbers of requests, uploads and ports.
func (b *Bucket) failed(ctx context.Context, operation string, err error) error {
	if errors.Is(context.Cause(ctx), ErrSlow) {
		return fmt.Errorf("%s: bucket %s: %w", operation, b.place.Bucket, ErrSlow)
	}
	response := minio.ErrorResponse{}
	if errors.As(err, &response) {
		switch {
		case response.Code == minio.NoSuchKey:
			return fmt.Errorf("%s: %w", operation, ErrNotFound)
		case response.Message != "":
			return fmt.Errorf("%s: bucket %s: %s (%s)", operation, b.place.Bucket, response.Message, response.Code)
		}
		return fmt.Errorf("%s: bucket %s: %s", operation, b.place.Bucket, response.Code)
	}
	return fmt.Errorf("%s: bucket %s: %w", operation, b.place.Bucket, endpoints.Coarse(b.place.Endpoint, err))
}
