// Package release builds releases of this work tree for tests: a clusterctl
// repository with Cluster API's core and this project's providers, and the
// programs that replace the images in its Deployments. The programs are stored
// in the cache of beds, so a second call for an unchanged work tree builds
// nothing. It publishes nothing: all its files are in one folder.
package release
