package snapshots

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// signature is the HMAC of a manifest. The manifest contains the hash of the
// content, so the content cannot be replaced either.
func (s Snapshot) signature(key []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%q", []string{
		"1", s.Name, s.Time.UTC().Format(time.RFC3339), strconv.FormatInt(s.Size, 10), s.SHA256, strconv.FormatInt(s.Revision, 10),
		s.EtcdVersion, s.History, s.Cluster, s.ClusterUID, s.Member,
	})
	return hex.EncodeToString(mac.Sum(nil))
}
