// Package release makes releases of this work tree for tests: a clusterctl
// repository with Cluster API's core beside this project's providers, and the
// programs that stand for the images its Deployments name. The programs are
// kept in the cache of beds, so an unchanged work tree costs nothing the next
// time. It refuses to publish anything: what it makes lies in one folder.
package release
