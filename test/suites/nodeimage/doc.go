// Package nodeimage makes a node image with the recipe in hack/image, inspects its disk, and boots a
// host from the file system on it. It knows no cluster. Programs and container images are downloaded
// from servers on this computer, as from those on the Internet behind a proxy.
package nodeimage
