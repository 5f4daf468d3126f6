//go:build tools

// Package tools pins the definition of ClusterProfiles, which tests of
// controllers/clusterprofile install.
package tools

import _ "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
