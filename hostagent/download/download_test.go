package download

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/agenttest"
)

// A file is downloaded again after a failure of the network, and not if it is another
// one.
func TestFile(t *testing.T) {
	const content = "program"
	sum := sha256.Sum256([]byte(content))
	right := hex.EncodeToString(sum[:])
	for name, tc := range map[string]struct {
		hash  string
		limit int64
		// failures is the number of responses that fail first.
		failures, requests int
		want               string
	}{
		"Right":     {hash: right, requests: 1},
		"AtLimit":   {hash: right, limit: int64(len(content)), requests: 1},
		"Again":     {hash: right, failures: 2, requests: 3},
		"TooLarge":  {hash: right, limit: int64(len(content)) - 1, requests: 1, want: "kubelet cannot be downloaded: reading response: it is larger than allowed"},
		"OtherHash": {hash: "ab", requests: 1, want: "kubelet has another SHA-256 than ab"},
		"NeverThere": {
			hash: right, failures: attempts, requests: attempts,
			want: "kubelet cannot be downloaded: the server responds with 503 Service Unavailable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if requests++; requests <= tc.failures {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				_, _ = w.Write([]byte(content))
			}))
			t.Cleanup(server.Close)
			n := agenttest.New(t, nil)
			err := File(t.Context(), n.Machine, Source{Name: "kubelet", URL: server.URL + "/secret", SHA256: tc.hash, Limit: tc.limit}, "kubelet")
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want || requests != tc.requests || strings.Contains(n.Log.String(), "secret") {
				t.Errorf("%q after %d requests\n%s", got, requests, n.Log)
			}
			if tc.want == "" && n.Get("kubelet") != content {
				t.Errorf("the file has %q", n.Get("kubelet"))
			}
		})
	}
}
