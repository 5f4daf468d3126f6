// Command catalogue renders every module of the catalogue with the libraries of
// Helm and Kustomize, for a matrix of Clusters, and checks the objects.
//
//	make catalogue CHARTS=FOLDER
//
// FOLDER contains the unpacked charts, as FOLDER/<chart>-<version>, with the
// charts that they depend on in charts/, as in the published packages. Every
// object is decoded strictly as its API type or against its CRD, every image
// must be in modules/catalogue/facts/images, and the objects that others refer to
// must exist. With -record the command writes the folder modules/catalogue/facts
// again; the tests of modules/catalogue compare the catalogue with it, without
// charts.
package main
