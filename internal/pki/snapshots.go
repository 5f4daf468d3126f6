package pki

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// SnapshotsKey in Secret <cluster>-etcd has the key that signs snapshots since a rotation:
// it is derived from the key of the first CA, and older snapshots stay usable.
const SnapshotsKey = "snapshots.key"

// DeriveSnapshotsKey returns the key that signs the manifests of a cluster's snapshots,
// derived from a secret that is never sent to the bucket.
func DeriveSnapshotsKey(secret []byte) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "nova-etcd-snapshot-manifest", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving key of snapshots: %w", err)
	}
	return key, nil
}
