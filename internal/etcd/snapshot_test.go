package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	. "github.com/onsi/gomega"
)

// snapshotOf is a database of some pages followed by its hash.
func snapshotOf(pages int) []byte {
	body := bytes.Repeat([]byte("nova etcd snapshot 16 bytes long"), pages*pageSize/32)
	sum := sha256.Sum256(body)
	return append(body, sum[:]...)
}

func TestVerifier(t *testing.T) {
	whole := snapshotOf(9)
	flipped := bytes.Clone(whole)
	flipped[700] ^= 1
	broken := errors.New("connection lost")
	for name, tc := range map[string]struct {
		reason string
		source io.Reader
		want   error
	}{
		"Whole":      {"a hash that is right ends the stream", bytes.NewReader(whole), nil},
		"ByteByByte": {"however it comes in", iotest.OneByteReader(bytes.NewReader(whole)), nil},
		"DataErr":    {"also with its end in the last read", iotest.DataErrReader(bytes.NewReader(whole)), nil},
		"Flipped":    {"one bit is enough", bytes.NewReader(flipped), ErrBrokenSnapshot},
		"CutShort":   {"a stream that ends early is not whole", bytes.NewReader(whole[:len(whole)-pageSize]), ErrBrokenSnapshot},
		"NoHash":     {"nor one without its hash", bytes.NewReader(whole[:len(whole)-sha256.Size]), ErrBrokenSnapshot},
		"Empty":      {"nor nothing", bytes.NewReader(nil), ErrBrokenSnapshot},
		"Failed":     {"a failure is passed on", io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(broken)), broken},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVerifier(tc.source)
			got, err := io.ReadAll(v)
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: err = %v, want %v", tc.reason, err, tc.want)
			}
			if v.ended != (tc.want == nil) {
				t.Errorf("%s: ended = %v", tc.reason, v.ended)
			}
			sum := sha256.Sum256(whole)
			if tc.want == nil && (!bytes.Equal(got, whole) || hex.EncodeToString(v.all.Sum(nil)) != hex.EncodeToString(sum[:])) {
				t.Errorf("%s: the data read differs from the data sent", tc.reason)
			}
		})
	}
}

// allow sets another timeout for the duration of a test.
func allow(t *testing.T, timeout time.Duration) {
	t.Helper()
	was := idleTimeout
	idleTimeout = timeout
	t.Cleanup(func() { idleTimeout = was })
}

func TestIdleCountsWaitingOnly(t *testing.T) {
	g := NewWithT(t)
	allow(t, 50*time.Millisecond)
	stream, member := io.Pipe()
	gone := errors.New("gone")
	idle := time.AfterFunc(time.Hour, func() { _ = member.CloseWithError(gone) })
	w := &watchful{source: stream, idle: idle}
	go func() { _, _ = member.Write(snapshotOf(1)) }()
	for range 3 {
		_, err := io.ReadFull(w, make([]byte, 8))
		g.Expect(err).NotTo(HaveOccurred(), "the consumer of the data has no timeout")
		<-time.After(3 * idleTimeout)
	}
	_, err := io.ReadAll(w)
	g.Expect(err).To(MatchError(gone), "a member that sends nothing is given up")
}

func TestTakeSnapshot(t *testing.T) {
	nodes := []string{"cp-a", "cp-b", "cp-c"}
	c := startCluster(t, nodes...)
	g := c.g
	g.Eventually(func() (bool, error) {
		health, err := Observe(t.Context(), c.dial, c.config, nodes)
		return err == nil && health.Quorum(), err
	}, "30s", "100ms").Should(BeTrue())

	take := func(node string) (Snapshot, []byte, error) {
		var content []byte
		s, err := TakeSnapshot(t.Context(), c.dial, c.config, node, func(_ context.Context, r io.Reader) (err error) {
			content, err = io.ReadAll(r)
			return err
		})
		return s, content, err
	}
	s, content, err := take("cp-b")
	g.Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(content)
	g.Expect(s.SHA256).To(Equal(hex.EncodeToString(sum[:])))
	g.Expect(s.Size).To(BeEquivalentTo(len(content)))
	g.Expect(s.Revision).To(BeNumerically(">=", 1))

	refused := errors.New("the bucket is full")
	_, err = TakeSnapshot(t.Context(), c.dial, c.config, "cp-b", func(context.Context, io.Reader) error { return refused })
	g.Expect(err).To(MatchError(refused))
	_, err = TakeSnapshot(t.Context(), c.dial, c.config, "cp-b", func(context.Context, io.Reader) error { return nil })
	g.Expect(err).To(MatchError(ContainSubstring("not read to its end")), "a store that keeps a part is no store")

	allow(t, time.Second)
	_, err = TakeSnapshot(t.Context(), c.dial, c.config, "cp-b", func(ctx context.Context, r io.Reader) error {
		if _, err := io.ReadFull(r, make([]byte, pageSize)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * idleTimeout):
		}
		_, err := io.Copy(io.Discard, r)
		return err
	})
	g.Expect(err).NotTo(HaveOccurred(), "a bucket may be slower than the member has time")

	c.members["cp-a"].kill()
	c.members["cp-b"].kill()
	_, _, err = take("cp-b")
	g.Expect(err).To(HaveOccurred(), "no member is left")
	_, _, err = take("cp-c")
	g.Expect(err).NotTo(HaveOccurred(), "the last member serves its data without a leader")
}
