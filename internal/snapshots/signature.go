package snapshots

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// DeriveKey returns the key that signs the manifests of a cluster's snapshots,
// derived from a secret that is never sent to the bucket.
func DeriveKey(secret []byte) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "nova-etcd-snapshot-manifest", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving key of snapshots: %w", err)
	}
	return key, nil
}

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
