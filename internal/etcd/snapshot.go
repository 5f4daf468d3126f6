package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// idleTimeout is how long a member may keep us waiting for the next bytes of a
// snapshot; tests have less time.
var idleTimeout = time.Minute

// pageSize is what the size of etcd's database is a multiple of.
const pageSize = 512

// Snapshot is a snapshot that was read to its end and whose hash was right.
type Snapshot struct {
	// Revision is the member's revision when the snapshot was begun. The
	// snapshot holds it and may hold later ones.
	Revision int64
	// Version is the storage version that the member names; it may be empty.
	Version string
	// Size is the number of bytes, with the hash at the end.
	Size int64
	// SHA256 is the hash of all these bytes, in hexadecimal.
	SHA256 string
}

// ErrBrokenSnapshot is a stream that is not what the member sent.
var ErrBrokenSnapshot = errors.New("the snapshot is not whole: the hash at its end does not match")

// TakeSnapshot streams a snapshot of the member on a node into put. A member
// without a leader gives one too. The reader that put is given ends with EOF
// only if the hash that the member sent last was right, so put must keep
// nothing when the reader fails.
func TakeSnapshot(ctx context.Context, dial Dial, config *tls.Config, node string,
	put func(ctx context.Context, content io.Reader) error,
) (_ Snapshot, reterr error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	endpoint := "https://" + net.JoinHostPort(node, strconv.Itoa(port))
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{endpoint}, TLS: config, Logger: zap.NewNop(),
		// gRPC's own context ends when the connection stands, and a forwarded
		// connection would end with it.
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			conn, err := dial(ctx, node)
			if err != nil {
				// gRPC would try again until the time is up.
				fail(err)
			}
			return conn, err
		})},
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("connecting to etcd on %s: %w", node, err)
	}
	defer func() { reterr = errors.Join(reterr, closed(client.Close())) }()

	// A gRPC call waits for a connection as long as it may.
	idle := time.AfterFunc(idleTimeout, func() { fail(fmt.Errorf("etcd on %s sent nothing for %s", node, idleTimeout)) })
	defer idle.Stop()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading status of etcd on %s: %w", node, cause(ctx, err))
	}
	response, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("taking snapshot of etcd on %s: %w", node, cause(ctx, err))
	}
	defer func() { _ = response.Snapshot.Close() }()
	idle.Stop()
	verified := newVerifier(&watchful{source: response.Snapshot, idle: idle})
	if err := put(ctx, verified); err != nil {
		return Snapshot{}, fmt.Errorf("storing snapshot of etcd on %s: %w", node, cause(ctx, err))
	}
	if !verified.ended {
		return Snapshot{}, fmt.Errorf("storing snapshot of etcd on %s: it was not read to its end", node)
	}
	return Snapshot{
		Revision: status.Header.GetRevision(), Version: response.Version,
		Size: verified.size, SHA256: hex.EncodeToString(verified.all.Sum(nil)),
	}, nil
}

// watchful lets a timer run while something is waited for, and only then: how
// long the bucket takes for what it was given is not the member's fault.
type watchful struct {
	source io.Reader
	idle   *time.Timer
}

// Read implements io.Reader.
func (w *watchful) Read(p []byte) (int, error) {
	w.idle.Reset(idleTimeout)
	defer w.idle.Stop()
	return w.source.Read(p)
}

// verifier hands a snapshot on and checks the hash that stands at its end.
type verifier struct {
	source io.Reader
	// all hashes every byte, body those before the hash at the end. tail holds
	// what may be that hash.
	all, body hash.Hash
	tail      []byte
	size      int64
	ended     bool
}

func newVerifier(source io.Reader) *verifier {
	return &verifier{source: source, all: sha256.New(), body: sha256.New()}
}

// Read implements io.Reader.
func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.source.Read(p)
	v.size += int64(n)
	// A hash takes all it is given.
	_, _ = v.all.Write(p[:n])
	v.tail = append(v.tail, p[:n]...)
	if over := len(v.tail) - sha256.Size; over > 0 {
		_, _ = v.body.Write(v.tail[:over])
		v.tail = append(v.tail[:0], v.tail[over:]...)
	}
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if v.size <= sha256.Size || v.size%pageSize != sha256.Size || !bytes.Equal(v.body.Sum(nil), v.tail) {
		return n, ErrBrokenSnapshot
	}
	v.ended = true
	return n, io.EOF
}
