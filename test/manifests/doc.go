// Package manifests renders the manifests in config/ and applies them to a real API server. It
// verifies that the API server and clusterctl accept them, that the managers have exactly the
// permissions that they need, and that the admission policies are enforced.
//
// It runs no managers: a suite that needs them uses the test environment.
package manifests
