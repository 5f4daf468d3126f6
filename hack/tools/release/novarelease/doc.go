// Command nova-release makes the images of a release, signs them, and copies
// images between registries and a folder. It needs no image builder, and the
// same input gives the same bytes.
//
//	nova-release images    -dir out -version v0.1.0 -registry REGISTRY -revision COMMIT -epoch 1700000000 [-key cosign.key]
//	nova-release manifests -dir out -version v0.1.0 -registry REGISTRY -revision COMMIT -epoch 1700000000 [-key cosign.key]
//	nova-release charts -layout DIR FOLDER
//	nova-release sign   -key cosign.key FILE
//	nova-release pull   -layout DIR [-from REGISTRY] [-arch ARCH] LIST
//	nova-release push   -layout DIR [-replace] REGISTRY
//	nova-release upload -dir out/repository -version v0.1.0 URL
//
// A folder of images has the layout of OCI. Each entry of its index is annotated
// with its name below a registry, such as nova-vsphere:v0.1.0. The credentials
// for registries are those of "docker login" and "podman login"; the CA of a
// registry is trusted if the environment variable SSL_CERT_FILE names its file,
// or with -ca.
package main
