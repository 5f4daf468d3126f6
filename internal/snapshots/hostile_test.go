package snapshots_test

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/internal/pki"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
)

// A snapshot is authentic only if the holder of the key wrote its manifest,
// unchanged.
func TestSignature(t *testing.T) {
	g := NewWithT(t)
	p := place(startServer(t))
	var err error
	p.Key, err = pki.DeriveSnapshotsKey([]byte("the key of etcd's CA"))
	g.Expect(err).NotTo(HaveOccurred())
	ours := open(t, p)
	p.Key, err = pki.DeriveSnapshotsKey([]byte("the key of another CA"))
	g.Expect(err).NotTo(HaveOccurred())
	another := open(t, p)
	p.Key = nil
	writer := open(t, p)

	data := content(1 << 10)
	s := described(at("2026-01-02T03:04:05Z"), data)
	g.Expect(ours.Put(t.Context(), s.Name, bytes.NewReader(data))).To(Succeed())
	g.Expect(ours.Commit(t.Context(), s)).To(Succeed())
	read, err := ours.Get(t.Context(), s.Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Authentic).To(BeTrue())
	for name, other := range map[string]*snapshots.Bucket{"another key": another, "no key": writer} {
		seen, err := other.Get(t.Context(), s.Name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(seen.Authentic).To(BeFalse(), name)
	}

	t.Log("a writer of the bucket replaces the content and its hash")
	for name, change := range map[string]func(*snapshots.Snapshot){
		"hash":    func(s *snapshots.Snapshot) { s.SHA256 = "00" },
		"history": func(s *snapshots.Snapshot) { s.History = "other" },
		"cluster": func(s *snapshots.Snapshot) { s.Cluster = "other" },
	} {
		forged := read
		change(&forged)
		g.Expect(writer.Commit(t.Context(), forged)).To(Succeed())
		seen, err := ours.Get(t.Context(), s.Name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(seen.Authentic).To(BeFalse(), name)
	}
}

// hostile serves a bucket with the given responses.
func hostile(t *testing.T, answer http.HandlerFunc) *snapshots.Bucket {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	yes := true
	return open(t, snapshots.Place{
		Endpoint: server.URL, Bucket: "bucket", Dir: dir, AccessKeyID: "a", SecretAccessKey: "s", PathStyle: &yes,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
}

// A transfer with a very slow bucket ends, for each kind of request.
func TestDrippingBucketIsGivenUp(t *testing.T) {
	g := NewWithT(t)
	b := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		for r.Context().Err() == nil {
			if _, err := fmt.Fprint(w, " "); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	b.SetWindow(200 * time.Millisecond)
	began := time.Now()
	_, err := b.List(t.Context())
	g.Expect(err).To(MatchError(snapshots.ErrSlow))
	_, err = b.Manifest(t.Context(), "20260102t030405z")
	g.Expect(err).To(MatchError(snapshots.ErrSlow))
	g.Expect(b.Put(t.Context(), "20260102t030405z", iotest.OneByteReader(bytes.NewReader(content(1<<10))))).To(MatchError(snapshots.ErrSlow))
	g.Expect(time.Since(began)).To(BeNumerically("<", 20*time.Second))
}

// A listing is limited, in objects and in bytes.
func TestListingsHaveAnEnd(t *testing.T) {
	g := NewWithT(t)
	var pages atomic.Int32
	b := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
		page := pages.Add(1)
		w.Header().Set("Content-Type", "application/xml")
		_, _ = fmt.Fprintf(w, `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>`, page)
		for i := range 1000 {
			_, _ = fmt.Fprintf(w, `<Contents><Key>%s/%d-%d.db</Key><Size>1</Size></Contents>`, dir, page, i)
		}
		_, _ = fmt.Fprint(w, `</ListBucketResult>`)
	})
	_, err := b.List(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("more than 10000 objects")))
	g.Expect(pages.Load()).To(BeNumerically("<=", snapshots.MaxObjects/1000+2))

	endless := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		_, _ = fmt.Fprint(w, `<ListBucketResult>`)
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("<A></A>"), 1000)); err != nil {
				return
			}
		}
	})
	_, err = endless.List(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("too large")))
}

// Clusters with one schedule are distributed over a part of the time between
// two snapshots, each with a fixed delay.
func TestJitter(t *testing.T) {
	g := NewWithT(t)
	due := at("2026-01-02T06:00:00Z")
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		uid := fmt.Sprintf("uid-%d", i)
		later := snapshots.Jitter("0 */6 * * *", uid, due)
		g.Expect(later).To(And(BeNumerically(">=", 0), BeNumerically("<", 30*time.Minute)))
		g.Expect(snapshots.Jitter("0 */6 * * *", uid, due.Add(6*time.Hour))).To(Equal(later))
		seen[later.Truncate(time.Minute)] = true
	}
	g.Expect(seen).To(HaveLen(30))
	g.Expect(snapshots.Jitter("* * * * *", "u", due)).To(BeNumerically("<", 6*time.Second))
	g.Expect(snapshots.Jitter("@every 6h", "u", due)).To(BeZero(), "it counts from the last snapshot")
	g.Expect(snapshots.Jitter("0 */6 * * *", "u", time.Time{})).To(BeZero(), "the first one is due at once")
}

// The time zones are compiled into the binary: an image has none.
func TestZonesAreInTheProgram(t *testing.T) {
	g := NewWithT(t)
	const program = "github.com/nova-platform/cluster-api-provider-nova/cmd/nova-control-plane"
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", program).Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Fields(string(output))).To(ContainElement("time/tzdata"))
}
