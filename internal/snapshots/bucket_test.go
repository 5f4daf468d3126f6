package snapshots_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"testing/iotest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nova-platform/cluster-api-provider-nova/internal/endpoints"
	"github.com/nova-platform/cluster-api-provider-nova/internal/snapshots"
	"github.com/nova-platform/cluster-api-provider-nova/test/s3"
)

// dir is the folder of the snapshots of the tests' cluster.
const dir = "nova/ns/c"

func startServer(t *testing.T) *s3.Server {
	t.Helper()
	server, err := s3.Start(t.Context(), s3.Options{Dir: t.TempDir(), Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

func place(server *s3.Server) snapshots.Place {
	return snapshots.Place{
		Endpoint: server.Endpoint, CA: server.CA, Bucket: s3.Bucket, Dir: dir,
		AccessKeyID: server.AccessKeyID, SecretAccessKey: server.SecretAccessKey,
	}
}

func open(t *testing.T, p snapshots.Place) *snapshots.Bucket {
	t.Helper()
	b, err := snapshots.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// content has the size of a snapshot that needs several parts.
func content(size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{7})
	_, _ = source.Read(data)
	return data
}

func described(begun time.Time, data []byte) snapshots.Snapshot {
	sum := sha256.Sum256(data)
	return snapshots.Snapshot{
		Name: snapshots.Name(begun), Time: begun.UTC().Truncate(time.Second), Size: int64(len(data)),
		SHA256: hex.EncodeToString(sum[:]), Revision: 42, Cluster: "c", ClusterUID: "u", Member: "m", Duration: time.Second,
	}
}

func TestBucket(t *testing.T) {
	g := NewWithT(t)
	server := startServer(t)
	b := open(t, place(server))
	g.Expect(b.List(t.Context())).To(BeEmpty())

	t.Log("a snapshot of several parts is whole once it is committed")
	data := content(40 << 20)
	newer := described(at("2026-01-02T03:04:05Z"), data)
	g.Expect(b.Put(t.Context(), newer.Name, bytes.NewReader(data))).To(Succeed())
	g.Expect(b.List(t.Context())).To(BeEmpty())
	_, err := b.Get(t.Context(), newer.Name)
	g.Expect(err).To(MatchError(snapshots.ErrNotFound))
	g.Expect(b.Commit(t.Context(), newer)).To(Succeed())
	g.Expect(b.Get(t.Context(), newer.Name)).To(Equal(newer))

	t.Log("an older one is listed before it")
	small := content(1000)
	older := described(at("2026-01-01T03:04:05Z"), small)
	g.Expect(b.Put(t.Context(), older.Name, bytes.NewReader(small))).To(Succeed())
	g.Expect(b.Commit(t.Context(), older)).To(Succeed())
	list, err := b.List(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list).To(HaveLen(2))
	g.Expect(list[0].Name).To(Equal(older.Name))
	g.Expect(list[1]).To(And(HaveField("Name", newer.Name), HaveField("Size", newer.Size), HaveField("Time", newer.Time)))

	t.Log("any client with the URL can download it, without credentials")
	link, err := b.URL(t.Context(), newer.Name, time.Minute)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(link).NotTo(ContainSubstring(server.SecretAccessKey))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(server.CA)
	response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}).Get(link)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	downloaded, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	g.Expect(bytes.Equal(downloaded, data)).To(BeTrue())

	t.Log("another cluster sees nothing of it")
	other := place(server)
	other.Dir = "nova/ns/c-2"
	g.Expect(open(t, other).List(t.Context())).To(BeEmpty())

	t.Log("one that lost a byte in the bucket is refused")
	g.Expect(os.Truncate(server.Path(dir+"/"+older.Name+".db"), 999)).To(Succeed())
	_, err = b.Get(t.Context(), older.Name)
	g.Expect(err).To(MatchError(ContainSubstring("999 bytes")))

	g.Expect(b.Delete(t.Context(), older.Name)).To(Succeed())
	g.Expect(b.Delete(t.Context(), older.Name)).To(Succeed(), "an answer may have been lost")
	g.Expect(b.List(t.Context())).To(HaveLen(1))
}

func TestInterruptedUpload(t *testing.T) {
	g := NewWithT(t)
	server := startServer(t)
	b := open(t, place(server))
	lost := errors.New("connection to etcd lost")
	broken := io.MultiReader(bytes.NewReader(content(20<<20)), iotest.ErrReader(lost))
	err := b.Put(t.Context(), "20260102t030405z", broken)
	g.Expect(err).To(MatchError(lost))
	g.Expect(b.List(t.Context())).To(BeEmpty())
	g.Expect(server.Objects()).To(BeEmpty(), "no part stays")

	t.Log("a manager dies between content and manifest, and one in a deletion")
	half, rest := "20260102t040405z", "20260102t050405z"
	g.Expect(b.Put(t.Context(), half, bytes.NewReader(content(100)))).To(Succeed())
	g.Expect(os.WriteFile(server.Path(dir+"/"+rest+".json"), []byte("{}"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(server.Path(dir+"/notes.txt"), []byte("somebody's"), 0o600)).To(Succeed())
	whole := described(at("2026-01-02T06:04:05Z"), content(100))
	g.Expect(b.Put(t.Context(), whole.Name, bytes.NewReader(content(100)))).To(Succeed())
	g.Expect(b.Commit(t.Context(), whole)).To(Succeed())

	g.Expect(b.Sweep(t.Context(), time.Now().Add(-time.Hour))).To(Succeed())
	g.Expect(server.Objects()).To(HaveLen(5), "recent objects may be in use")
	g.Expect(b.Sweep(t.Context(), time.Now().Add(time.Hour))).To(Succeed())
	g.Expect(server.Objects()).To(ConsistOf(dir+"/notes.txt", dir+"/"+whole.Name+".db", dir+"/"+whole.Name+".json"),
		"only unused objects are deleted")
}

func TestFailuresReadWellAndStayTheSame(t *testing.T) {
	g := NewWithT(t)
	server := startServer(t)
	for name, tc := range map[string]struct {
		change func(*snapshots.Place)
		want   string
	}{
		"WrongKey":   {func(p *snapshots.Place) { p.SecretAccessKey = "hunter2hunter2" }, "SignatureDoesNotMatch"},
		"UnknownKey": {func(p *snapshots.Place) { p.AccessKeyID = "somebody" }, "access key ID"},
		"NoBucket":   {func(p *snapshots.Place) { p.Bucket = "elsewhere" }, "NoSuchBucket"},
		"WrongCA":    {func(p *snapshots.Place) { p.CA = nil }, endpoints.ErrUntrusted.Error()},
		"Nobody":     {func(p *snapshots.Place) { p.Endpoint = "https://127.0.0.1:1" }, "no connection to it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := place(server)
			tc.change(&p)
			b := open(t, p)
			_, first := b.List(t.Context())
			_, second := b.List(t.Context())
			g.Expect(first).To(MatchError(ContainSubstring(tc.want)))
			g.Expect(first.Error()).To(Equal(second.Error()))
			g.Expect(first.Error()).NotTo(ContainSubstring("hunter2"))
		})
	}
	_, err := snapshots.Open(snapshots.Place{Endpoint: "http://127.0.0.1:80"})
	g.Expect(err).To(MatchError(ContainSubstring("no https URL")))
	_, err = snapshots.Open(snapshots.Place{Endpoint: "https://127.0.0.1", CA: []byte("x")})
	g.Expect(err).To(MatchError(ContainSubstring("no certificate")))
}
