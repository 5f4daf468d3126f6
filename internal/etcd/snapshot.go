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

// idleTimeout limits the wait for the next bytes of a snapshot; tests use a
// shorter one.
var idleTimeout = time.Minute

// The size of etcd's database is a multiple of pageSize.
const pageSize = 512

// Snapshot is a completely read snapshot with a valid hash.
type Snapshot struct {
	// Revision is the member's revision when the snapshot was started. The
	// snapshot contains it and may contain later ones.
	Revision int64
	// Version is the storage version that the member reports; it may be empty.
	Version string
	// Size is the number of bytes, including the hash at the end.
	Size int64
	// SHA256 is the hash of all these bytes, in hexadecimal.
	SHA256 string
}

// ErrBrokenSnapshot is returned for a stream that differs from the data that
// the member sent.
var ErrBrokenSnapshot = errors.New("the snapshot is not whole: the hash at its end does not match")

// TakeSnapshot streams a snapshot of the member on a node into put. A member
// without a leader can serve one too. The reader passed to put ends with EOF
// only if the hash at the end is valid, so put must discard the data if the
// reader fails.
func TakeSnapshot(ctx context.Context, dial Dial, config *tls.Config, node string,
	put func(ctx context.Context, content io.Reader) error,
) (_ Snapshot, reterr error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	endpoint := "https://" + net.JoinHostPort(node, strconv.Itoa(port))
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{endpoint}, TLS: config, Logger: zap.NewNop(),
		// gRPC's own context ends when the connection is established, and a
		// forwarded connection would end with it.
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			conn, err := dial(ctx, node)
			if err != nil {
				// gRPC would retry until the timeout.
				fail(err)
			}
			return conn, err
		})},
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("connecting to etcd on %s: %w", node, err)
	}
	defer func() { reterr = errors.Join(reterr, closed(client.Close())) }()

	// A gRPC call waits for a connection without a limit.
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

// watchful runs a timer only during reads: the time that the bucket needs for
// the data is not the member's fault.
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

// verifier passes a snapshot on and checks the hash at its end.
type verifier struct {
	source io.Reader
	// all hashes every byte, body the bytes before the hash at the end. tail
	// contains the bytes that may be that hash.
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
	// Writing to a hash never fails.
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
