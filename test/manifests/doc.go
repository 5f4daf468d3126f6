// Package manifests renders what config/ installs and applies it to a real API
// server: that it is accepted, that clusterctl takes it, that the managers may
// do what they do and no more, and that the admission policies hold.
//
// It refuses to run managers: a suite that needs them uses the test bed.
package manifests
