// Package env starts a real API server with the definitions of Cluster API and
// of this project for tests of reconcilers. Core Cluster API managers do not
// run in it: a suite that needs them uses the test bed.
package env
